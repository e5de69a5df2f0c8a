import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { AdapterSource } from '../../../learner/step/adapter-source.js';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import { AdapterOutOfReach, BadRequest } from '../../../shared/tinker/errors.js';
import { silent } from '../../support/broker.js';

/** A source of the adapters of a backend that offers some of the ways, and the calls that it made. */
function sourceOf(offers: { archives?: boolean; external?: boolean }) {
  const calls: string[] = [];
  const download = (way: string) => (path: string) => {
    calls.push(`${way} ${path}`);
    return Promise.resolve({ adapter: new TextEncoder().encode(path), rank: 2, alpha: 4 });
  };
  const source = new AdapterSource({
    client: {
      downloadAdapter: offers.archives
        ? download('archive of')
        : () => Promise.reject(new AdapterOutOfReach('no archives')),
      downloadExternal: download('files of'),
      deleteCheckpoint: (path) => {
        calls.push(`delete ${path}`);
        return Promise.resolve();
      },
    },
    run: {
      saveWeightsExternal: (name) => {
        calls.push(`save ${name}`);
        return offers.external
          ? Promise.resolve(`tinker://run/external_weights/${name}`)
          : Promise.reject(new BadRequest({ operation: 'save', url: 'there', detail: 'no call' }));
      },
    },
    idle: new IdleClock(() => 0),
    log: silent,
  });
  return { source, calls };
}

const saved = (version: number) => `tinker://run/sampler_weights/policy-${version}`;
const files = (version: number) => `tinker://run/external_weights/policy-00000${version}-files`;

describe('the adapters of published versions', () => {
  it('adapters come from archives where the backend offers them, and nothing else is saved', async () => {
    const { source, calls } = sourceOf({ archives: true, external: true });
    for (const version of [0, 1]) {
      source.save(version);
      await source.fetch(version, saved(version));
      await source.delete(version);
    }
    assert.equal(source.kind, 'archive');
    assert.deepEqual(calls, [`archive of ${saved(0)}`, `archive of ${saved(1)}`]);
  });

  it('without archives each version is saved once more, and its files are downloaded, again if asked, and deleted', async () => {
    const { source, calls } = sourceOf({ external: true });
    source.save(0);
    const first = await source.fetch(0, saved(0));
    assert.equal(new TextDecoder().decode(first!.adapter), files(0));
    assert.equal(source.kind, 'external weights');
    source.save(1);
    await source.fetch(1, saved(1));
    await source.fetch(0, saved(0));
    await source.delete(0);
    const named = (version: number) => `policy-00000${version}-files`;
    assert.deepEqual(calls, [
      `save ${named(0)}`,
      `files of ${files(0)}`,
      `save ${named(1)}`,
      `files of ${files(1)}`,
      `files of ${files(0)}`,
      `delete ${files(0)}`,
    ]);
    await assert.rejects(source.fetch(0, saved(0)), /version 0 has no external weights/);
  });

  it('a backend that offers neither is asked once, and has no adapters', async () => {
    const { source, calls } = sourceOf({});
    for (const version of [0, 1]) {
      source.save(version);
      assert.equal(await source.fetch(version, saved(version)), undefined);
    }
    assert.equal(source.kind, 'none');
    assert.deepEqual(calls, ['save policy-000000-files']);
  });
});
