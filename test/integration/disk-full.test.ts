import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { z } from 'zod';
import { newestPorts } from '../../cli/nats-server/running.js';
import { DiskWatch } from '../../cli/processes/disk-watch.js';
import { Summary } from '../../cli/up/summary.js';
import { CheckpointStore } from '../../local-backend/checkpoint-store.js';
import { Journal } from '../../learner/report/journal.js';
import { diskTrouble } from '../../shared/service/telemetry/disk-room.js';
import { silent } from '../support/log.js';
import { SmallDisk } from '../support/small-disk.js';
import { UpProcess } from '../support/up-process.js';
import { never, until } from '../support/waiting.js';

/** A disk for one test; undefined, with the test skipped, if this user may not mount one. */
async function smallDisk(context: TestContext, bytes: number): Promise<SmallDisk | undefined> {
  const disk = SmallDisk.at(await mkdtemp(join(tmpdir(), 'offbeat-up-')), bytes);
  if (disk === undefined) context.skip('needs the right to mount a file system');
  return disk;
}

describe('a file on a full disk', { timeout: 60_000 }, () => {
  const kind = {
    key: 'n',
    name: 'numbers.jsonl',
    entryOf: (n: number) => ({ n, text: 'x'.repeat(3_000) }),
  };
  const numbersIn = async (folder: string) => {
    const text = await readFile(join(folder, 'numbers.jsonl'), 'utf8');
    return text
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as { n: number }).n);
  };

  it('a file on a full disk gets each line once and whole when there is space again', async (context) => {
    using disk = await smallDisk(context, 200_000);
    if (disk === undefined) return;
    const journal = await Journal.open(disk.folder, kind, [1], () => true, {
      log: silent,
      signal: never,
    });
    disk.fill(); // to the end of a page, so that the next line is torn
    const appended = journal.append(2).then(() => journal.append(3));
    await until(() => /^the disk is full: cannot write numbers/.test(diskTrouble() ?? ''));
    disk.clear();
    await appended;
    assert.deepEqual(await numbersIn(disk.folder), [1, 2, 3]);
    assert.equal(diskTrouble(), undefined);
  });

  it('a file on a full disk lacks the lines that did not fit when the learner stops, but none is torn', async (context) => {
    using disk = await smallDisk(context, 200_000);
    if (disk === undefined) return;
    const stop = new AbortController();
    const wait = { log: silent, signal: stop.signal };
    const journal = await Journal.open(disk.folder, kind, [1], () => true, wait);
    disk.fill();
    const appended = journal.append(2);
    await until(() => diskTrouble() !== undefined);
    stop.abort();
    await appended;
    assert.equal(diskTrouble(), undefined); // no write waits for room any more
    assert.deepEqual(await numbersIn(disk.folder), [1]);
    disk.clear();
    await journal.append(3);
    assert.deepEqual(await numbersIn(disk.folder), [1, 3]);
  });

  it('a checkpoint of the local backend waits for disk space, and the previous one stays', async (context) => {
    using disk = await smallDisk(context, 1_000_000);
    if (disk === undefined) return;
    const store = await CheckpointStore.open(disk.folder, silent);
    const about = { training_run_id: 'run', kind: 'weights', name: 's' } as never;
    const files = (fill: number) => ({
      adapter: new Uint8Array(200_000).fill(fill),
      adapterConfig: '{}',
    });
    const path = { runId: 'run', kind: 'weights', name: 's' } as const;
    await store.save(about, files(1));
    disk.fill();
    const saved = store.save(about, files(2));
    await until(() => /checkpoints/.test(diskTrouble() ?? ''));
    assert.equal((await store.read(path)).adapter[0], 1);
    disk.clear();
    await saved;
    assert.equal((await store.read(path)).adapter[0], 2);
  });
});

describe('the watch over a disk', { timeout: 60_000 }, () => {
  it('the disk watch accepts a report by a writer whose file does not fit although small files do', async (context) => {
    using disk = await smallDisk(context, 4_000_000);
    if (disk === undefined) return;
    const told: string[] = [];
    let trouble: string | undefined = 'the disk is full: cannot write checkpoints (local-backend)';
    await using watch = new DiskWatch({
      folder: disk.folder,
      ask: () => Promise.resolve(trouble),
      onFull: (reason) => told.push(reason),
      onRoom: () => told.push('room'),
    });
    await watch.poll();
    trouble = undefined;
    await watch.poll();
    assert.deepEqual(told, ['the disk is full: cannot write checkpoints (local-backend)', 'room']);
  });

  it('the disk watch waits until there is room for writers that were stuck since its last check', async (context) => {
    using disk = await smallDisk(context, 4_000_000);
    if (disk === undefined) return;
    const told: string[] = [];
    let troubles: string[] = [];
    await using watch = new DiskWatch({
      folder: disk.folder,
      ask: () => Promise.resolve(troubles.shift()),
      onFull: (reason) => told.push(reason),
      onRoom: () => told.push('room'),
    });
    await watch.poll();
    troubles = ['the disk is full: cannot write metrics.jsonl (learner)'];
    assert.equal(await watch.hasRoomNow(never), true);
    assert.deepEqual(told, ['the disk is full: cannot write metrics.jsonl (learner)', 'room']);
  });

  it('the disk watch reports in one check that the disk is full, and later that it has space again', async (context) => {
    using disk = await smallDisk(context, 4_000_000);
    if (disk === undefined) return;
    const told: string[] = [];
    await using watch = new DiskWatch({
      folder: disk.folder,
      onFull: (reason) => told.push(reason),
      onRoom: () => told.push('room'),
    });
    await watch.poll();
    disk.fill();
    await watch.poll();
    await watch.poll();
    const waited = watch.room(never);
    disk.clear();
    await writeFile(join(disk.folder, 'most'), Buffer.alloc(3_500_000));
    await watch.poll(); // so little space would be used up at once
    const full = `the disk is full: nothing can be written to ${disk.folder}`;
    assert.deepEqual(told, [full]);
    await writeFile(join(disk.folder, 'most'), '');
    await waited;
    assert.deepEqual(told, [full, 'room']);
  });
});

describe('offbeat up on a disk that was full before', { timeout: 120_000 }, () => {
  const started = async (context: TestContext, disk: SmallDisk, ...flags: string[]) => {
    const run = disk.folder.replace(/.*offbeat-up-/, 'up-');
    const up = await UpProcess.start(flags, { folder: disk.folder, run });
    context.after(() => up[Symbol.asyncDispose]()); // after its folder is unmounted
    return { code: await up.ended(), said: up.out + up.err, run };
  };

  for (const [name, left] of Object.entries({ nothing: 0, 'hardly anything': 60_000 })) {
    it(`offbeat up on a disk where ${name} fits reports it and leaves nothing behind`, async (context) => {
      const disk = await smallDisk(context, 4_000_000);
      if (disk === undefined) return;
      using _disk = disk;
      const kept = join(disk.folder, 'kept');
      await writeFile(kept, Buffer.alloc(left));
      disk.fill();
      await rm(kept);
      const { code, said, run } = await started(context, disk);
      assert.equal(code, 2);
      assert.match(said, /the disk is full: .*make room/);
      assert.doesNotMatch(said, /continues by itself|\n +at /);
      assert(!existsSync(join(disk.folder, 'runs', run)));
    });
  }

  it('offbeat up reports a full disk without a stack when it resumes a run', async (context) => {
    const disk = await smallDisk(context, 4_000_000);
    if (disk === undefined) return;
    using _disk = disk;
    const folder = join(disk.folder, 'runs', disk.folder.replace(/.*offbeat-up-/, 'up-'));
    await mkdir(folder, { recursive: true });
    await writeFile(
      join(folder, 'launch.json'),
      JSON.stringify({
        v: 1,
        run: 'r',
        launcher: { sampler: 'onnx' },
        settings: { testSize: 256 },
      }),
    );
    disk.fill();
    const { code, said } = await started(context, disk, '--resume');
    assert.equal(code, 2);
    assert.match(said, /the disk is full: /);
    assert.doesNotMatch(said, /\n +at /);
    assert(!existsSync(join(folder, '.lock')));
  });
});

describe('offbeat up on a disk that fills up', { timeout: 480_000 }, () => {
  const small =
    '--groups-per-batch=2 --group-size=8 --num-minibatches=1 --lora-rank=2 --train-size=512 --eval-problems=0'.split(
      ' ',
    );

  it('offbeat up reports a full disk, waits, continues when there is space, and on a full disk ends at once when asked to', async (context) => {
    const disk = await smallDisk(context, 120_000_000);
    if (disk === undefined) return;
    await using up = await UpProcess.start([...small, '--checkpoint-every-steps=1'], {
      folder: disk.folder,
      run: disk.folder.replace(/.*offbeat-up-/, 'up-'), // by which its processes are found
    });
    using _disk = disk; // disposed of first: a mounted folder cannot be removed
    await up.trainsOn();
    await disk.keepFullUntil(up.says(/the disk is full: .*continues by itself/));
    disk.clear();
    await up.says(/the disk has room again, the run continues/);
    await up.trainsOn();
    assert.doesNotMatch(up.out + up.err, /without JetStream|of 5\)/);

    await disk.keepFullUntil(up.says(/the disk is full[^]*the disk is full/));
    up.child.kill('SIGTERM');
    assert.equal(await up.ended(), 143);
    await until(() => up.processes().length === 0); // killed processes disappear a moment later
  });

  it('a stop right after a full disk has room again saves the run, since nats-server is restarted first', async (context) => {
    const disk = await smallDisk(context, 120_000_000);
    if (disk === undefined) return;
    const run = disk.folder.replace(/.*offbeat-up-/, 'up-');
    await using up = await UpProcess.start([...small, '--checkpoint-every-steps=50'], {
      folder: disk.folder,
      run,
    });
    using _disk = disk;
    await up.trainsOn();
    const { monitoringUrl } = (await newestPorts(up.path('nats')))!;
    const answer = async (path: string) => {
      const signal = AbortSignal.timeout(2_000);
      return await fetch(monitoringUrl + path, { signal }).catch(() => undefined);
    };
    const isBroken = async () => {
      // 2.15.1 stores nothing more in a stream, and says so here.
      if ((await answer('/healthz'))?.ok !== true) return true;
      // 2.9.10 is healthy by its own account, but has switched JetStream off, or hangs when asked about it.
      const jetStream = await answer('/jsz');
      if (jetStream === undefined) return true;
      return z.object({ disabled: z.boolean().default(false) }).parse(await jetStream.json())
        .disabled;
    };
    await disk.keepFullUntil(until(isBroken));
    disk.clear();
    up.child.kill('SIGTERM');
    assert.equal(await up.ended(), 143);
    assert(existsSync(up.path('summary.json')), up.out + up.err);
    const { steps } = Summary.parse(JSON.parse(await up.read('summary.json')));
    assert(steps > 0);
  });
});
