import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { CheckpointStore } from '../../local-backend/checkpoint-store.js';
import { ApiError } from '../../local-backend/http-api.js';
import { silent } from '../support/log.js';
import { checkpointAbout } from './values.js';

describe('a change to a checkpoint whose files are gone', () => {
  let root: string;
  let store: CheckpointStore;
  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'offbeat-changes-'));
    store = await CheckpointStore.open(root, silent);
  });
  after(() => rm(root, { recursive: true }));

  const saved = async (name: string) => {
    const files = { adapter: Uint8Array.of(1), adapterConfig: '{}' };
    await store.save(checkpointAbout({ kind: 'weights', name }), files);
    return { runId: 'run', kind: 'weights', name } as const;
  };

  it('a change to a checkpoint that is deleted meanwhile is refused as one to an unknown checkpoint', async () => {
    for (let round = 0; round < 20; round++) {
      const path = await saved(`n${round}`);
      const [change, deletion] = await Promise.allSettled([
        store.change(path, { public: true }),
        store.delete(path),
      ]);
      assert.equal(deletion.status, 'fulfilled');
      if (change.status === 'fulfilled') continue; // it was first
      assert(change.reason instanceof ApiError, String(change.reason));
      assert.equal(change.reason.status, 404);
    }
  });

  it('the error of a change names a missing file of a checkpoint that was not deleted', async () => {
    const path = await saved('kept');
    await rm(join(root, 'run', 'weights', 'kept'), { recursive: true });
    await assert.rejects(store.change(path, { public: true }), /ENOENT/);
  });
});
