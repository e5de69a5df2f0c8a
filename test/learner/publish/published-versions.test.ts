import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PublishedVersions } from '../../../learner/publish/published-versions.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import { silent } from '../../support/log.js';

const manifest = (version: number): PolicyManifest => ({
  v: 1,
  version,
  samplerPath: `tinker://run/sampler_weights/policy-${version}`,
  smallestUsefulVersion: 0,
  consumedBelow: 0,
  publishedAt: 1_000 + version,
});

const sha256 = 'a'.repeat(64);
const adapter = { uri: `nats:${sha256}`, sha256, bytes: 8, rank: 4, alpha: 8 };

/** Versions 3 and 4, both published before the first outage; NATS has lost those in `lost`. */
function published({
  lost,
  leads = true,
  download = () => Promise.resolve(undefined),
}: {
  lost: readonly number[];
  leads?: boolean;
  download?: () => Promise<undefined>;
}) {
  const checked: [version: number, isNewest: boolean][] = [];
  const restored: [version: number, isNewest: boolean][] = [];
  let restorations = 0;
  const versions = new PublishedVersions({
    policy: {
      isWhole: ({ version }, isNewest) => {
        checked.push([version, isNewest]);
        return Promise.resolve(!lost.includes(version));
      },
      republish: (one, _adapter, isNewest) => {
        restored.push([one.version, isNewest]);
        return Promise.resolve({ ...one, publishedAt: 9_000 });
      },
    },
    restorations: () => restorations,
    download,
    confirmLead: () =>
      leads ? Promise.resolve() : Promise.reject(new Error('another learner leads run r now')),
    log: silent,
  });
  for (const version of [3, 4]) versions.add(manifest(version), restorations);
  return { versions, checked, restored, outage: () => restorations++ };
}

describe('PublishedVersions', () => {
  it('published versions are not checked without an outage', async () => {
    const { versions, restored } = published({ lost: [3, 4] });
    await versions.restoreLost();
    assert.deepEqual(restored, []);
  });

  it('published versions that an outage has lost are published again', async () => {
    const { versions, checked, restored, outage } = published({ lost: [3, 4] });
    outage();
    await versions.restoreLost();
    assert.deepEqual(restored, [
      [3, false],
      [4, true],
    ]);
    assert.deepEqual(checked, restored);
  });

  it('published versions are published again only once per outage', async () => {
    const { versions, restored, outage } = published({ lost: [4] });
    outage();
    await versions.restoreLost();
    await versions.restoreLost();
    assert.deepEqual(restored, [[4, true]]);
  });

  it('a learner that another one has replaced publishes no version again', async () => {
    const { versions, restored, outage } = published({ lost: [3, 4], leads: false });
    outage();
    await assert.rejects(versions.restoreLost(), /another learner leads/);
    assert.deepEqual(restored, []);
  });

  it('a version that is retired while it is looked for is not published again', async () => {
    const { versions, restored, outage } = published({ lost: [3] });
    outage();
    const restoring = versions.restoreLost();
    versions.keep(new Set([4])); // the store is still being asked
    await restoring;
    assert.deepEqual(restored, []);
  });

  it('a version that is retired while its weights are fetched again ends nothing, and any other error does', async () => {
    for (const isRetired of [true, false]) {
      const { versions, restored, outage } = published({
        lost: [3],
        download: () => {
          if (isRetired) versions.keep(new Set([4]));
          return Promise.reject(new Error('its weights were deleted'));
        },
      });
      versions.add({ ...manifest(3), adapter }, 0);
      outage();
      const restoring = versions.restoreLost();
      if (isRetired) await restoring;
      else await assert.rejects(restoring, /its weights were deleted/);
      assert.deepEqual(restored, []);
    }
  });

  it('published versions that no actor may request are forgotten', async () => {
    const { versions, restored, outage } = published({ lost: [3, 4] });
    versions.keep(new Set([4]));
    outage();
    await versions.restoreLost();
    assert.deepEqual(restored, [[4, true]]);
  });
});
