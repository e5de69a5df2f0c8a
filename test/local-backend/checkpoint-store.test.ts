import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { promisify } from 'node:util';
import {
  CheckpointStore,
  formatTinkerPath,
  nextAutomaticName,
} from '../../local-backend/checkpoint-store.js';
import {
  deleteExpired,
  keptSnapshots,
  snapshotsToDelete,
} from '../../local-backend/checkpoint-expiry.js';
import { packageRoot } from '../../shared/base/package-root.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';
import { silent } from '../support/log.js';
import { gate } from '../support/waiting.js';
import { checkpointAbout } from './values.js';

const files = { adapter: Uint8Array.of(1, 2, 3), adapterConfig: '{}' };

describe('the checkpoint store', () => {
  let base: string;
  let count = 0;
  before(async () => {
    base = await mkdtemp(join(tmpdir(), 'offbeat-checkpoints-'));
  });
  after(() => rm(base, { recursive: true }));
  const freshRoot = () => join(base, String(count++));

  it('the checkpoint store writes the layout of PEFT under run, kind and name', async () => {
    const root = freshRoot();
    const store = await CheckpointStore.open(root, silent);
    const about = checkpointAbout({ training_run_id: 'run', kind: 'weights', name: 'a' });
    await store.save(about, { ...files, optimizer: Uint8Array.of(9) });
    const folder = join(root, 'run', 'weights', 'a');
    assert.deepEqual((await readdir(folder)).sort(), ['adapter', 'metadata.json', 'optimizer']);
    assert.deepEqual((await readdir(join(folder, 'adapter'))).sort(), [
      'adapter_config.json',
      'adapter_model.safetensors',
    ]);
    assert.deepEqual(
      [...(await readFile(join(folder, 'optimizer', 'optimizer.safetensors')))],
      [9],
    );
  });

  it('the checkpoint store lists the checkpoints of an earlier process, oldest first', async () => {
    const root = freshRoot();
    const first = await CheckpointStore.open(root, silent);
    for (const [name, created_at] of [
      ['late', '2026-01-02T00:00:00.000Z'],
      ['early', '2026-01-01T00:00:00.000Z'],
    ] as const) {
      await first.save(checkpointAbout({ name, created_at }), files);
    }
    const second = await CheckpointStore.open(root, silent);
    assert.deepEqual(
      second.list().map(({ name }) => name),
      ['early', 'late'],
    );
    assert.deepEqual(second.list(), first.list());
    const path = { runId: 'run', kind: 'sampler_weights', name: 'late' } as const;
    assert.deepEqual([...(await second.read(path)).adapter], [1, 2, 3]);
  });

  it('the checkpoint store refuses a folder that cannot be made, and names its flag', async () => {
    const root = freshRoot();
    await writeFile(root, '');
    await assert.rejects(CheckpointStore.open(root, silent), {
      name: 'UserError',
      message: /name another with --checkpoint-dir$/,
    });
  });

  it('the checkpoint store stores both kinds under the same name separately', async () => {
    const store = await CheckpointStore.open(freshRoot(), silent);
    await store.save(checkpointAbout({ kind: 'weights', name: 'same' }), files);
    await store.save(checkpointAbout({ kind: 'sampler_weights', name: 'same' }), {
      ...files,
      adapter: Uint8Array.of(7),
    });
    const read = (kind: 'weights' | 'sampler_weights') =>
      store.read({ runId: 'run', kind, name: 'same' });
    assert.deepEqual([...(await read('weights')).adapter], [1, 2, 3]);
    assert.deepEqual([...(await read('sampler_weights')).adapter], [7]);
  });

  it('the checkpoint store reads a checkpoint that is being replaced as a whole, before or after', async () => {
    const store = await CheckpointStore.open(freshRoot(), silent);
    const about = checkpointAbout({ kind: 'weights', name: 'w' });
    const path = { runId: 'run', kind: 'weights', name: 'w' } as const;
    const version = (n: number) => ({
      ...files,
      adapter: Uint8Array.of(n),
      optimizer: Uint8Array.of(n),
    });
    await store.save(about, version(0));
    for (let n = 1; n <= 20; n++) {
      const saved = store.save(about, version(n));
      const reads = Array.from({ length: 3 }, () => store.read(path));
      for (const { adapter, optimizer } of await Promise.all(reads)) {
        assert.deepEqual(optimizer && [...optimizer], [...adapter]);
      }
      await saved;
    }
  });

  it('a checkpoint that is deleted while it is being saved again is there with its files or not at all', async () => {
    const root = freshRoot();
    const store = await CheckpointStore.open(root, silent);
    const path = { runId: 'run', kind: 'weights', name: 'w' } as const;
    const about = checkpointAbout({ kind: 'weights', name: 'w' });
    await store.save(about, files);
    for (let turns = 0; turns < 20; turns++) {
      const saving = store.save(about, files);
      for (let turn = 0; turn < turns; turn++) await setImmediate();
      await Promise.all([saving, store.delete(path).catch(() => undefined)]);
      const there = await readdir(join(root, 'run', 'weights'));
      assert.deepEqual(there, store.has(path) ? ['w'] : []);
    }
    await store.save(about, files);
    assert.deepEqual([...(await store.read(path)).adapter], [1, 2, 3]);
    const both = await Promise.allSettled([store.delete(path), store.delete(path)]);
    assert.deepEqual(
      both.map(({ status }) => status),
      ['fulfilled', 'rejected'],
    );
    assert.match(String((both[1] as PromiseRejectedResult).reason), /not found/);
  });

  it('expired checkpoints are deleted unless they were changed meanwhile, and one failure stops no other', async () => {
    const root = freshRoot();
    const store = await CheckpointStore.open(root, silent);
    const over = '2026-01-01T00:00:00.000Z';
    const path = (name: string) => ({ runId: 'run', kind: 'weights', name }) as const;
    for (const name of ['a', 'b', 'c', 'd']) {
      await store.save(checkpointAbout({ kind: 'weights', name, expires_at: over }), files);
    }
    const changed = gate();
    const stuck: Pick<CheckpointStore, 'expired' | 'list' | 'has' | 'delete'> = {
      list: () => store.list(),
      expired: (now) => store.expired(now),
      has: (one) => store.has(one),
      delete: async (one, ...more) => {
        if (one.name !== 'a') return store.delete(one, ...more);
        await changed.opened;
        throw new Error('a is stuck');
      },
    };
    const deleting = deleteExpired(
      stuck as CheckpointStore,
      { closeFor: () => undefined, lastUses: () => ({ open: new Map(), closed: new Map() }) },
      { now: Date.parse(over), startedAt: 0 },
    );
    await store.change(path('b'), { public: false, expires_at: null });
    await store.save(checkpointAbout({ kind: 'weights', name: 'd' }), files);
    changed.open();
    await assert.rejects(deleting, /a is stuck/);
    assert.deepEqual(
      store.list().map(({ name }) => name),
      ['a', 'b', 'd'],
    );
  });

  it('snapshots without a name are deleted once they are unused, the newest of samplers that are open excepted', () => {
    const hourMs = 3_600_000;
    const now = Date.parse('2026-02-01T00:00:00.000Z');
    const snapshot = (name: string, hoursAgo: number, unnamed = true) => ({
      ...checkpointAbout({ kind: 'sampler_weights', name }),
      ...{ created_at: new Date(now - hoursAgo * hourMs).toISOString(), unnamed },
      ...{ adapter_sha256: '', size_bytes: 0 },
    });
    const times = (hoursAgo: Record<string, number>) =>
      new Map(
        Object.entries(hoursAgo).map(([name, hours]) => {
          const path = `tinker://run/sampler_weights/${name}`;
          return [path, now - hours * hourMs] as const;
        }),
      );
    const deleted = (
      saved: ReturnType<typeof snapshot>[],
      opened: Record<string, number>,
      { closed = {}, upHours = 1_000 }: { closed?: Record<string, number>; upHours?: number } = {},
    ) => {
      const clock = { now, startedAt: now - upHours * hourMs };
      const uses = { open: times(opened), closed: times(closed) };
      return snapshotsToDelete(saved, clock, uses).map(({ name }) => name);
    };
    const alone = [snapshot('old', 24), snapshot('new', 23.9), snapshot('named', 24, false)];
    assert.deepEqual(deleted(alone, {}), ['old']);
    assert.deepEqual(deleted(alone, {}, { upHours: 1 }), []); // it may have been used by the process before
    assert.deepEqual(deleted(alone, {}, { closed: { old: 1 } }), []);
    assert.deepEqual(deleted(alone, {}, { closed: { old: 24 } }), ['old']);

    const open = Array.from({ length: keptSnapshots + 3 }, (_, i) => snapshot(`s${i}`, 500 - i));
    const usedLong = Object.fromEntries(open.map(({ name }) => [name, 2]));
    const uses = { ...usedLong, s1: 0.9 }; // as the model that others are compared with
    assert.deepEqual(deleted([...open, snapshot('without sampler', 1)], uses), ['s2', 's0']);
  });

  it('a snapshot that a client copies, publishes or keeps for a time is no longer without a name', async () => {
    const store = await CheckpointStore.open(freshRoot(), silent);
    const save = (name: string) =>
      store.save({ ...checkpointAbout({ kind: 'sampler_weights', name }), unnamed: true }, files);
    const path = (name: string) => ({ runId: 'run', kind: 'sampler_weights', name }) as const;
    for (const name of ['left', 'copied', 'kept', 'published']) await save(name);
    const copy = await store.copy(path('copied'), 'copy', null);
    await store.change(path('kept'), { expires_at: null });
    await store.change(path('published'), { public: true });
    const none = { open: new Map<string, number>(), closed: new Map<string, number>() };
    const samplers = { closeFor: () => undefined, lastUses: () => none };
    await deleteExpired(store, samplers, { now: Date.now() + 2 * 86_400_000, startedAt: 0 });
    const left = store.list().map(({ name, training_run_id: run }) => `${run}/${name}`);
    assert.deepEqual(left.sort(), ['copy/copied', 'run/kept', 'run/published']);
    assert.equal(store.get(copy).unnamed, undefined);
  });

  it('the checkpoint store replaces all files of a checkpoint with the same name', async () => {
    const root = freshRoot();
    const store = await CheckpointStore.open(root, silent);
    const about = checkpointAbout({ kind: 'weights' });
    await store.save(about, { ...files, optimizer: Uint8Array.of(9) });
    await store.save(about, { ...files, adapter: Uint8Array.of(4) });
    const path = { runId: 'run', kind: 'weights', name: about.name } as const;
    const read = await store.read(path);
    assert.deepEqual([...read.adapter], [4]);
    assert.equal(read.optimizer, undefined);
    assert.deepEqual(await readdir(join(root, 'run', 'weights')), [about.name]);
  });

  it('the checkpoint store changes the metadata of what is being saved, not of what it replaces', async () => {
    const root = freshRoot();
    const store = await CheckpointStore.open(root, silent);
    const about = checkpointAbout({ kind: 'weights', name: 'a' });
    const { adapter_sha256: replaced } = await store.save(about, files);
    const path = { runId: 'run', kind: 'weights', name: 'a' } as const;
    const saving = store.save(about, { ...files, adapter: Uint8Array.of(4) });
    await store.change(path, { public: true });
    const { adapter_sha256: saved } = await saving;
    assert.notEqual(saved, replaced);
    for (const seen of [store, await CheckpointStore.open(root, silent)]) {
      const { public: isPublic, adapter_sha256 } = seen.get(path);
      assert.deepEqual([isPublic, adapter_sha256], [true, saved]);
    }
  });

  it('the checkpoint store forgets a checkpoint whose folder is gone once it is deleted', async () => {
    const root = freshRoot();
    const store = await CheckpointStore.open(root, silent);
    await store.save(checkpointAbout({ kind: 'weights', name: 'a' }), files);
    const path = { runId: 'run', kind: 'weights', name: 'a' } as const;
    await rm(join(root, 'run', 'weights', 'a'), { recursive: true });
    await assert.rejects(store.delete(path), /ENOENT/);
    assert.equal(store.has(path), false);
  });

  it('the checkpoint store restores the old content after a crash before the rename of the new one', async () => {
    const root = freshRoot();
    const store = await CheckpointStore.open(root, silent);
    const about = checkpointAbout({ kind: 'weights', name: 'a' });
    await store.save(about, files);
    const parent = join(root, 'run', 'weights');
    const id = '00000000-0000-4000-8000-000000000000';
    await rename(join(parent, 'a'), join(parent, `.old.${id}.a`));
    await mkdir(join(parent, `.new.${id}`)); // half-written
    const reopened = await CheckpointStore.open(root, silent);
    assert.deepEqual(await readdir(parent), ['a']);
    assert.equal(reopened.list().length, 1);
  });

  it('the checkpoint store keeps the old content and no half-written files when the disk is full', async () => {
    const root = freshRoot();
    const module = (path: string) => JSON.stringify(new URL(path, import.meta.url).href);
    // The file size limit makes writes fail as a full disk does.
    const program = `
      const { CheckpointStore } = await import(${module('../../local-backend/checkpoint-store.js')});
      const { checkpointAbout } = await import(${module('./values.js')});
      const { silent } = await import(${module('../support/log.js')});
      const store = await CheckpointStore.open(process.argv[1], silent);
      const about = checkpointAbout({ training_run_id: 'run', kind: 'weights', name: 'a' });
      const of = (size) => ({ adapter: new Uint8Array(size).fill(7), adapterConfig: '{}' });
      await store.save(about, of(1_000));
      const failed = await store.save(about, of(200_000)).then(() => 'saved', ({ code }) => code);
      const { adapter } = await store.read({ runId: 'run', kind: 'weights', name: 'a' });
      console.log(JSON.stringify([failed, adapter.byteLength]));`;
    const limited = 'ulimit -f 64; exec "$@"';
    const node = [process.execPath, '--input-type=module', '--eval', program, root];
    const { stdout } = await promisify(execFile)('/bin/sh', ['-c', limited, 'sh', ...node], {
      cwd: packageRoot,
    });
    assert.deepEqual(JSON.parse(stdout), ['EFBIG', 1_000]);
    assert.deepEqual(await readdir(join(root, 'run', 'weights')), ['a']);
  });

  it('the checkpoint store skips a corrupt checkpoint and keeps the rest', async () => {
    const root = freshRoot();
    const store = await CheckpointStore.open(root, silent);
    await store.save(checkpointAbout({ name: 'good' }), files);
    await store.save(checkpointAbout({ name: 'bad' }), files);
    await writeFile(join(root, 'run', 'sampler_weights', 'bad', 'metadata.json'), '{"v":1');
    const reopened = await CheckpointStore.open(root, silent);
    assert.deepEqual(
      reopened.list().map(({ name }) => name),
      ['good'],
    );
  });

  it('the checkpoint store skips a folder that no run can have, which need not be readable', async () => {
    const root = freshRoot();
    const first = await CheckpointStore.open(root, silent);
    await first.save(checkpointAbout({ name: 'good' }), files);
    await mkdir(join(root, 'lost+found'));
    await writeFile(join(root, 'lost+found', 'weights'), ''); // no folder
    const second = await CheckpointStore.open(root, silent);
    assert.deepEqual(
      second.list().map(({ name }) => name),
      ['good'],
    );
  });

  it('the checkpoint store removes a deleted checkpoint from the list and the disk', async () => {
    const root = freshRoot();
    const store = await CheckpointStore.open(root, silent);
    await store.save(checkpointAbout({ name: 'gone' }), files);
    const path = { runId: 'run', kind: 'sampler_weights', name: 'gone' } as const;
    await store.delete(path);
    await assert.rejects(store.read(path), /not found/);
    assert.deepEqual(await readdir(join(root, 'run', 'sampler_weights')), []);
  });

  it('the checkpoint store refuses names that would escape its folder', async () => {
    const store = await CheckpointStore.open(freshRoot(), silent);
    for (const name of ['../escape', '..', 'a/b', '.hidden', '']) {
      await assert.rejects(store.save(checkpointAbout({ name }), files), /checkpoint name/);
    }
  });
});

describe('checkpoint names', () => {
  it('checkpoint names start at checkpoint-0001 by default', () => {
    assert.equal(nextAutomaticName([]), 'checkpoint-0001');
    assert.equal(nextAutomaticName(['step-7']), 'checkpoint-0001');
  });

  it('checkpoint names continue above the highest number in use, also beyond four digits', () => {
    assert.equal(nextAutomaticName(['checkpoint-0003', 'checkpoint-0001']), 'checkpoint-0004');
    assert.equal(nextAutomaticName(['checkpoint-9999']), 'checkpoint-10000');
  });

  it('tinker paths of checkpoints parse back', () => {
    const path = { runId: 'run-1', kind: 'sampler_weights', name: 'v3' } as const;
    assert.deepEqual(parseTinkerPath(formatTinkerPath(path)), path);
  });
});
