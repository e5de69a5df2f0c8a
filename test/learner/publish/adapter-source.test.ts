import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { AdapterSource } from '../../../learner/publish/adapter-source.js';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import { UserError } from '../../../shared/base/errors.js';
import { AdapterOutOfReach, BadRequest } from '../../../shared/tinker/errors.js';
import { silent } from '../../support/log.js';

/** A source of the adapters of a backend that offers some of the ways, and the calls that it made. */
function sourceOf(offers: { archives?: boolean; external?: boolean; asLinks?: boolean }) {
  const calls: string[] = [];
  const download = (way: string) => (path: string) => {
    calls.push(`${way} ${path}`);
    return Promise.resolve({ adapter: new TextEncoder().encode(path), rank: 2, alpha: 4 });
  };
  const source = new AdapterSource({
    client: {
      locateAdapter: () =>
        offers.archives ? Promise.resolve() : Promise.reject(new AdapterOutOfReach('no archives')),
      downloadAdapter: download('archive of'),
      downloadExternal: async (path) => ({
        ...(await download('files of')(path)),
        link: linkTo(path),
      }),
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
    asLinks: offers.asLinks === true,
    idle: new IdleClock(() => 0),
    log: silent,
  });
  return { source, calls };
}

const linkTo = (path: string) => ({
  url: `https://store.example/${path.slice(-10)}`,
  expiresAt: 9,
});
const saved = (version: number) => `tinker://run/sampler_weights/policy-${version}`;
const of = (version: number) => ({ version, samplerPath: saved(version) });
const files = (version: number) => `tinker://run/external_weights/policy-00000${version}-files`;

describe('the adapters of published versions', () => {
  it('adapters come from archives where the backend offers them, and nothing else is saved', async () => {
    const { source, calls } = sourceOf({ archives: true, external: true });
    for (const version of [0, 1]) {
      source.save(version);
      await source.fetch(of(version));
      await source.delete({ version });
    }
    assert.equal(source.kind, 'archive');
    assert.deepEqual(calls, [`archive of ${saved(0)}`, `archive of ${saved(1)}`]);
  });

  it('without archives each version is saved once more, and its files are downloaded, again if asked, and deleted', async () => {
    const { source, calls } = sourceOf({ external: true });
    source.save(0);
    const first = await source.fetch(of(0));
    assert.equal(new TextDecoder().decode(first!.adapter), files(0));
    assert.equal(source.kind, 'external weights');
    source.save(1);
    await source.fetch(of(1));
    await source.fetch(of(0));
    await source.delete({ version: 0 });
    const named = (version: number) => `policy-00000${version}-files`;
    assert.deepEqual(calls, [
      `save ${named(0)}`,
      `files of ${files(0)}`,
      `save ${named(1)}`,
      `files of ${files(1)}`,
      `files of ${files(0)}`,
      `delete ${files(0)}`,
    ]);
    await assert.rejects(source.fetch(of(0)), /version 0 has no external weights/);
  });

  it('an adapter of an earlier session is fetched and deleted by the path in its manifest', async () => {
    const { source, calls } = sourceOf({ external: true });
    await source.find(5, saved(5));
    assert.deepEqual((await source.fetch(of(3), files(3)))?.external?.link, linkTo(files(3)));
    const contents = { sha256: 'a'.repeat(64), bytes: 1, rank: 2, alpha: 4 };
    await source.delete({ version: 3, adapter: { uri: 'nats:x', files: files(3), ...contents } });
    assert.deepEqual(calls.slice(1), [`files of ${files(3)}`, `delete ${files(3)}`]);
  });

  it('for links no archive is used, and a backend without external weights is refused with the remedy', async () => {
    const { source } = sourceOf({ archives: true, external: true, asLinks: true });
    assert.deepEqual((await source.fetch(of(0)))?.external, {
      path: files(0),
      link: linkTo(files(0)),
    });
    const other = sourceOf({ archives: true, asLinks: true }).source;
    await assert.rejects(other.find(0, saved(0)), (error) => {
      assert(error instanceof UserError);
      assert.match(error.message, /--adapter-store is link.*choose nats or a folder/);
      return true;
    });
  });

  it('a backend that offers neither is asked once, and has no adapters', async () => {
    const { source, calls } = sourceOf({});
    for (const version of [0, 1]) {
      source.save(version);
      assert.equal(await source.fetch(of(version)), undefined);
    }
    assert.equal(source.kind, 'none');
    assert.deepEqual(calls, ['save policy-000000-files']);
  });
});
