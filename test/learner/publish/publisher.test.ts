import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Certificates } from '../../../learner/audit/certificates.js';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import { AdapterSupply, VersionNotFinite } from '../../../learner/publish/adapter-supply.js';
import { Publisher } from '../../../learner/publish/publisher.js';
import { UserError } from '../../../shared/base/errors.js';
import { encodeAdapter } from '../../../shared/model/lora.js';
import { parseModelConfig } from '../../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../../shared/model/model-writer.js';
import { AdapterOutOfReach, BadRequest } from '../../../shared/tinker/errors.js';
import type { ActorLease } from '../../../shared/wire/actor-lease.js';
import { canaryDigest, type Canary } from '../../../shared/wire/canary.js';
import { silent } from '../../support/log.js';
import { actorLease, rolloutGroup, scoredGroup } from '../../support/messages.js';
import { tinySizes, warmAdapter } from '../../support/tiny-model.js';

const config = parseModelConfig(qwen3ConfigText(tinySizes), 'config.json');

/** An adapter's file, with this number as one of its weights. */
function adapterWith(weight: number): Uint8Array {
  const adapter = warmAdapter(config, 2);
  [...adapter.tensors.values()].at(-1)!.data[3] = weight;
  return encodeAdapter(adapter).safetensors;
}

const noSuchCall = () =>
  Promise.reject(
    new BadRequest({ operation: 'save_weights_external', url: 'http://backend', detail: 'no' }),
  );

/** The supply of adapters by an object store, for an actor that needs them. */
function supplyBy(client: object): AdapterSupply {
  return new AdapterSupply({
    client: { locateAdapter: () => Promise.resolve(), ...client } as never,
    run: { saveWeightsExternal: noSuchCall },
    settings: { adapterStore: 'nats', adapterDtype: 'fp32', publishAdapters: 'auto' },
    runName: 'r',
    leases: () => Promise.resolve([]),
    idle: new IdleClock(() => 0),
    signal: new AbortController().signal,
    log: silent,
  });
}

/** A publisher of the weights that a backend has, and the versions that it announced. */
function publishing(backend: {
  adapter?: () => Uint8Array;
  logprob?: () => number; // of a token that is drawn by the backend
}) {
  const published: number[] = [];
  const publisher = new Publisher({
    broker: {
      policy: {
        publish: (manifest: { version: number }) => {
          published.push(manifest.version);
          return Promise.resolve(manifest);
        },
      },
      events: { emit: () => Promise.resolve() },
      actors: {},
    } as never,
    adapters: supplyBy({
      locateAdapter: () =>
        backend.adapter === undefined
          ? Promise.reject(new AdapterOutOfReach('it is on another machine'))
          : Promise.resolve(),
      downloadAdapter: () => Promise.resolve({ adapter: backend.adapter!(), rank: 2, alpha: 4 }),
    }),
    client: {
      createSamplingSession: (path: string) => Promise.resolve(`session of ${path}`),
      sampler: () => ({
        sample: () =>
          Promise.resolve([
            { tokens: Int32Array.of(1), logprobs: [backend.logprob!()], stopReason: 'length' },
          ]),
      }),
    } as never,
    run: {
      saveWeightsForSampler: (name) => Promise.resolve(`tinker://run/${name}`),
    },
    backendSamples: backend.logprob !== undefined,
    canaries: { request: () => () => Promise.resolve(undefined) },
    certificates: new Certificates(),
    versionAudit: { add: () => undefined },
    idle: new IdleClock(() => 0),
    maxStepsOffPolicy: 1,
    rewinds: [],
    quarantined: () => [],
    confirmLead: () => Promise.resolve(),
    consumedBelow: () => 0,
    log: silent,
  });
  return { publisher, published };
}

describe('Publisher', () => {
  for (const broken of [NaN, Infinity, -Infinity]) {
    it(`the publisher refuses weights that contain ${broken} and leaves the version before in use`, async () => {
      let weight = 0.5;
      const { publisher, published } = publishing({ adapter: () => adapterWith(weight) });
      await publisher.publish(0);
      weight = broken;
      await assert.rejects(publisher.publish(1), (error) => {
        assert(error instanceof VersionNotFinite);
        assert.match(error.message, /^policy version 1 is not published: .* element 3 of .* is -?/);
        assert(error.message.endsWith(String(broken)));
        return true;
      });
      assert.deepEqual([published, publisher.newestVersion], [[0], 0]);
    });
  }

  it('the publisher checks a drawn token where the backend samples but hands out no weights', async () => {
    let logprob = -1;
    const { publisher, published } = publishing({ logprob: () => logprob });
    await publisher.publish(0);
    logprob = NaN;
    await assert.rejects(publisher.publish(1), /version 1 is not published: a token .* NaN$/);
    assert.deepEqual(published, [0]);
  });

  it('weights that cannot be read are an error of the user', async () => {
    const { publisher } = publishing({ adapter: () => adapterWith(0.5).subarray(0, 100) });
    await assert.rejects(publisher.publish(0), (error) => {
      assert(error instanceof UserError);
      assert.match(error.message, /weights of version 0 that cannot be read: the adapter is not/);
      return true;
    });
  });
});

const weightsOf = (version: number) => `tinker://run/sampler_weights/${version}`;

/** A publisher of ten versions whose backend deletes with `deletes`, and a manifest for each version. */
async function bench(
  deletes: (path: string) => Promise<void>,
  whileListing: (publisher: Publisher) => Promise<unknown> = () => Promise.resolve(),
  leases: readonly ActorLease[] = [],
) {
  let now = 0;
  const manifests = new Set<number>();
  const broker = { restorations: 0 };
  const checked: number[] = [];
  const kept: number[][] = []; // at each retirement
  const policy = {
    isWhole: ({ version }: { version: number }) => {
      checked.push(version);
      return Promise.resolve(true);
    },
    publish: (manifest: { version: number }) => {
      manifests.add(manifest.version);
      return Promise.resolve(manifest);
    },
    async retire(keep: ReadonlySet<number>, forget: (manifest: object) => Promise<boolean>) {
      kept.push([...keep]);
      for (const version of manifests) {
        if (keep.has(version)) continue;
        if (await forget({ version, samplerPath: weightsOf(version) })) manifests.delete(version);
      }
    },
  };
  const publisher: Publisher = new Publisher({
    broker: Object.assign(broker, {
      policy,
      actors: { list: () => whileListing(publisher).then(() => leases) },
      events: { emit: () => Promise.resolve() },
    }) as never,
    client: {
      deleteCheckpoint: deletes,
      createSamplingSession: () => Promise.resolve('s'),
      sampler: () => assert.fail('the adapter is looked at, so no token needs to be drawn'),
    },
    adapters: supplyBy({
      downloadAdapter: () => Promise.resolve({ adapter: adapterWith(0.5), rank: 2, alpha: 4 }),
      downloadExternal: () => assert.fail('the archive is used'),
    }),
    run: { saveWeightsForSampler: (name) => Promise.resolve(name) },
    backendSamples: true,
    canaries: { request: () => () => Promise.resolve(undefined) },
    certificates: new Certificates(),
    versionAudit: { add: () => undefined },
    idle: new IdleClock(() => 0),
    maxStepsOffPolicy: 0,
    rewinds: [],
    quarantined: () => [],
    confirmLead: () => Promise.resolve(),
    consumedBelow: () => 0,
    now: () => now,
    log: silent,
  });
  for (let version = 0; version < 10; version++) await publisher.publish(version);
  const wait = (seconds: number) => (now += 1_000 * seconds);
  return { publisher, manifests, checked, kept, wait, outage: () => (broker.restorations += 1) };
}

describe('the canary of a published version', () => {
  it('the canary is requested right after the weights, and is in the manifest and known before it', async () => {
    const canary: Canary = {
      ...{ temperature: 1, arithmetic: 'fp32', texts: [Int32Array.of(3, 4)], places: [[0, 1]] },
      logprobs: Float32Array.of(-1),
    };
    const queued: string[] = [];
    const manifests: object[] = [];
    const certificates = new Certificates();
    const group = (digest: string) =>
      scoredGroup({
        group: rolloutGroup({
          certificate: { canaries: [[0, digest]], engine: 'x', arithmetic: 'fp32' },
        }),
      });
    const publisher = new Publisher({
      broker: {
        policy: {
          publish: (manifest: object) => {
            assert.equal(certificates.verdict(group(canaryDigest(0, canary))), 'certified');
            assert.equal(certificates.verdict(group('e'.repeat(64))), 'wrong');
            manifests.push(manifest);
            return Promise.resolve(manifest);
          },
        },
        events: { emit: () => Promise.resolve() },
      } as never,
      client: { createSamplingSession: () => Promise.resolve('s') } as never,
      adapters: supplyBy({
        downloadAdapter: () => Promise.resolve({ adapter: adapterWith(0.5), rank: 2, alpha: 4 }),
      }),
      run: {
        saveWeightsForSampler: (name) => {
          queued.push('save');
          return Promise.resolve(name);
        },
      },
      canaries: {
        request: (version) => {
          queued.push(`canary of ${version}`);
          return () => Promise.resolve(canary);
        },
      },
      certificates,
      versionAudit: { add: () => undefined },
      ...{ backendSamples: true, idle: new IdleClock(() => 0), maxStepsOffPolicy: 1, rewinds: [] },
      ...{ quarantined: () => [], confirmLead: () => Promise.resolve(), consumedBelow: () => 0 },
      log: silent,
    });
    const published = publisher.publish(0);
    assert.deepEqual(queued, ['save', 'canary of 0']);
    await published;
    assert.deepEqual(
      manifests.map((manifest) => (manifest as { canary: Canary }).canary),
      [canary],
    );
  });
});

describe('versions that NATS may have lost', () => {
  it('an outage is followed by a check of the versions published while old ones were retired', async () => {
    const { publisher, checked, outage } = await bench(
      () => Promise.resolve(),
      async (busy) => {
        await busy.publish(10);
        await busy.publish(11);
      },
    );
    await publisher.retire([]);
    outage();
    await publisher.maintain();
    assert.equal(checked.at(-1), 11);
  });
});

describe('versions that the leases of actors name', () => {
  it('a version in a lease is kept, but none above the newest, which the store would take for the newest published', async () => {
    const leases = [3, 9, 10, 10 ** 9].map((version) => actorLease({ version }));
    const { publisher, kept } = await bench(() => Promise.resolve(), undefined, leases);
    await publisher.retire([]);
    assert.deepEqual(kept, [[3, 9]]);
  });
});

describe('a version above the newest published one', () => {
  it('is not named as one to keep, since the store would retire the one that is being published', async () => {
    const { publisher, kept } = await bench(() => Promise.resolve());
    await publisher.retire([11, 4]);
    assert.deepEqual(kept, [[4, 9]]);
  });
});

describe('sampling weights that the backend could not delete', () => {
  it('a failed deletion is retried after a pause, not at every step, and keeps its manifest until then', async () => {
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

  it('weights that the backend refuses to delete are not retried', async () => {
    const { publisher, manifests } = await bench(() => Promise.reject(new UserError('not yours')));
    await publisher.retire([]);
    assert.deepEqual([...manifests], [9]);
  });
});
