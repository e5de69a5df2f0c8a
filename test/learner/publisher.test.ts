import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { IdleClock } from '../../learner/idle-clock.js';
import { Publisher } from '../../learner/publisher.js';
import { UserError } from '../../shared/errors.js';
import { silent } from '../support/broker.js';

const weightsOf = (version: number) => `tinker://run/sampler_weights/${version}`;

/** A publisher of ten versions whose backend deletes as told, and a manifest for each. */
async function bench(deletes: (path: string) => Promise<void>) {
  let now = 0;
  const manifests = new Set<number>();
  const policy = {
    publish: ({ version }: { version: number }) => Promise.resolve(void manifests.add(version)),
    async retire(keep: ReadonlySet<number>, forget: (manifest: object) => Promise<boolean>) {
      for (const version of manifests) {
        if (keep.has(version)) continue;
        if (await forget({ version, samplerPath: weightsOf(version) })) manifests.delete(version);
      }
    },
  };
  const publisher = new Publisher({
    broker: {
      policy,
      actors: { list: () => Promise.resolve([]) },
      events: { emit: () => Promise.resolve() },
    } as never,
    client: {
      deleteCheckpoint: deletes,
      createSamplingSession: () => Promise.resolve('s'),
      downloadAdapter: () => Promise.resolve({ adapter: new Uint8Array(1), rank: 1, alpha: 2 }),
    },
    run: { saveWeightsForSampler: (name) => Promise.resolve(name) },
    backendSamples: true,
    idle: new IdleClock(() => 0),
    maxStepsOffPolicy: 0,
    rewinds: [],
    quarantined: () => [],
    consumedBelow: () => 0,
    now: () => now,
    log: silent,
  });
  for (let version = 0; version < 10; version++) await publisher.publish(version);
  return { publisher, manifests, wait: (seconds: number) => (now += 1_000 * seconds) };
}

describe('sampling weights that the backend could not delete', () => {
  it('are tried again after a while, not at every step, and keep their manifests so long', async () => {
    const asked: string[] = [];
    let isAway = true;
    const { publisher, manifests, wait } = await bench((path) => {
      asked.push(path);
      const fails = isAway && path === weightsOf(3);
      return fails ? Promise.reject(new Error('answered 500')) : Promise.resolve();
    });
    await publisher.retire([]);
    assert.deepEqual([...manifests], [3, 9]);
    assert.equal(asked.length, 9);
    await publisher.retire([]);
    assert.equal(asked.length, 9);
    isAway = false;
    wait(5);
    await publisher.retire([]);
    assert.equal(asked.at(-1), weightsOf(3));
    assert.deepEqual([...manifests], [9]);
  });

  it('are left where the backend will never delete them', async () => {
    const { publisher, manifests } = await bench(() => Promise.reject(new UserError('not yours')));
    await publisher.retire([]);
    assert.deepEqual([...manifests], [9]);
  });
});
