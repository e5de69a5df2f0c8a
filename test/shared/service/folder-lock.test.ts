import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { lockFolder } from '../../../shared/service/folder-lock.js';
import { UserError } from '../../../shared/base/errors.js';
import { isRunning } from '../../support/processes.js';

/** Elsewhere a process is known by its pid alone. */
const onLinux = { skip: process.platform !== 'linux' };

describe('the lock of a folder', { timeout: 30_000 }, () => {
  let folder: string;
  let path: string;
  const lock = () => lockFolder(folder, 'offbeat test');
  const refused = (message: RegExp) =>
    assert.rejects(lock(), (error) => {
      assert(error instanceof UserError);
      assert.match(error.message, message);
      return true;
    });
  /** The file of a lock that this process held, with other fields. */
  const leave = async (fields: object): Promise<void> => {
    using _lock = await lock();
    const ours = JSON.parse(await readFile(path, 'utf8')) as object;
    await rm(path);
    await writeFile(path, JSON.stringify({ ...ours, ...fields }));
  };
  const age = () => utimes(path, 1, 1);

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-lock-'));
    path = join(folder, '.lock');
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('a folder is locked by one caller at a time, also within a process', async () => {
    {
      using _lock = await lock();
      await refused(
        new RegExp(`^process ${process.pid} \\(offbeat test\\) is using ${folder}; wait`),
      );
    }
    assert.deepEqual(await readdir(folder), []);
    using _lock = await lock();
  });

  it('only one of several callers takes over the lock of a dead process', async () => {
    const module = new URL('../../../shared/service/folder-lock.js', import.meta.url).href;
    // A thread each, so that they are at any point of it at once.
    const code = `const { parentPort } = require('node:worker_threads');
      parentPort.on('message', async (folder) => {
        const { lockFolder } = await import(${JSON.stringify(module)});
        const lock = await lockFolder(folder, 'offbeat test').catch(() => undefined);
        parentPort.postMessage(lock !== undefined);
      });`;
    const callers = Array.from({ length: 4 }, () => new Worker(code, { eval: true }));
    for (let round = 0; round < 100; round++) {
      await writeFile(path, '999999999');
      const answers = callers.map(async (caller) => {
        caller.postMessage(folder);
        const [hasTaken] = (await once(caller, 'message')) as [boolean];
        return hasTaken;
      });
      const taken = (await Promise.all(answers)).filter(Boolean);
      assert.deepEqual(taken, [true]);
    }
    await Promise.all(callers.map((caller) => caller.terminate()));
    assert.deepEqual(await readdir(folder), ['.lock']);
  });

  it('a lock is taken over although an earlier process was killed when it did so', async () => {
    await writeFile(path, '999999999');
    const guard = join(folder, '.lock.takeover');
    await writeFile(guard, '');
    await utimes(guard, 1, 1);
    using _lock = await lock();
    assert.deepEqual(await readdir(folder), ['.lock']);
  });

  it('a lock is taken over if its holder has the pid of a later process', onLinux, async () => {
    await leave({ startTime: '1' }); // as in a container, where each start is process 1
    using _lock = await lock();
  });

  it('a lock is taken over if its holder was killed and is a zombie', onLinux, async () => {
    const parent = spawn('sh', ['-c', 'sleep 600 & echo $!; exec cat']);
    const [line] = (await once(parent.stdout, 'data')) as [Buffer];
    const pid = Number(line.toString());
    parent.stdin.write('once it answers, it is cat, which never waits for the child of the shell');
    await once(parent.stdout, 'data');
    try {
      process.kill(pid, 'SIGKILL');
      while (isRunning(pid)) await setImmediate();
      const startTime = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(' ')[21];
      await leave({ pid, startTime });
      using _lock = await lock();
    } finally {
      parent.kill('SIGKILL');
    }
  });

  it('a lock of another host is refused with the host and the file, even if its pid is unknown here', async () => {
    await leave({ pid: 999_999_999, host: 'gpu-1', bootId: 'another' });
    await age();
    await refused(
      /^process 999999999 \(offbeat test\) on the host gpu-1 is using .*; end it there; if it no longer runs, remove .*\/\.lock$/,
    );
  });

  it('a service takes over the lock of another host that is not renewed while it watches', async () => {
    await leave({ host: 'node-1', bootId: 'another' });
    using _lock = await lockFolder(folder, 'offbeat test', { watchMs: 100 });
    assert.match(await readFile(path, 'utf8'), new RegExp(`"pid":${process.pid}\\b.*"command"`));
  });

  it('a service that watches the lock of another host is refused once it is renewed', async () => {
    await leave({ host: 'node-1', bootId: 'another' });
    const waiting = lockFolder(folder, 'offbeat test', { watchMs: 60_000 });
    const refusal = assert.rejects(waiting, /on the host node-1 is using/);
    for (let i = 0; i < 10; i++) await stat(path); // it has looked at the file by then
    await age();
    await refusal;
  });

  it('a service that watches does not wait for the lock of a process that it sees running, unless asked to', async () => {
    const first = await lock();
    const reasons: string[] = [];
    const onWait = (reason: string) => reasons.push(reason);
    const waiting = lockFolder(folder, 'offbeat test', { holderMs: 60_000, onWait });
    for (let i = 0; i < 10; i++) await stat(path); // it has looked at the file by then
    first[Symbol.dispose]();
    using _lock = await waiting;
    assert.equal(reasons.length, 1);
    assert.match(reasons[0]!, new RegExp(`^process ${process.pid} .* is using ${folder}`));
    await assert.rejects(
      lockFolder(folder, 'offbeat test', { watchMs: 60_000 }),
      /wait until it ends/,
    );
  });

  it(
    'a lock of another container is refused until it has not been renewed for 30 s',
    onLinux,
    async () => {
      await leave({ pid: 1, host: 'c0ffee', pidNamespace: 'pid:[1]' });
      await refused(
        /^process 1 .* in another container or outside of this one \(c0ffee\) .*; if it was killed, try again in/,
      );
      await age();
      using _lock = await lock();
    },
  );

  it('the holder of a lock renews it', async () => {
    mock.timers.enable({ apis: ['setInterval'] });
    try {
      using _lock = await lock();
      await age();
      mock.timers.tick(5_000);
      while ((await stat(path)).mtimeMs === 1_000) await setImmediate();
    } finally {
      mock.timers.reset();
    }
  });

  it('a lock is taken over after the host was started again', async () => {
    await leave({ bootId: 'an earlier one' }); // since then its pid may be any process
    await age();
    using _lock = await lock();
  });

  it('a lock of an earlier release, which is a bare pid, is understood', async () => {
    await writeFile(path, String(process.ppid));
    await refused(new RegExp(`^process ${process.ppid} is using`));
    for (const dead of ['999999999', String(process.pid)]) {
      await writeFile(path, dead);
      using _lock = await lock();
    }
  });

  it('a command that only reads the folder is waited for, but not for long', async () => {
    const reader = await lockFolder(folder, 'offbeat status', { isReader: true });
    await assert.rejects(lockFolder(folder, 'offbeat up', { readerMs: 0 }), {
      message: `process ${process.pid} (offbeat status) is using ${folder}; wait until it ends, or end it`,
    });
    const waiting = lockFolder(folder, 'offbeat up');
    for (let i = 0; i < 10; i++) await stat(path); // it has looked at the file by then
    reader[Symbol.dispose]();
    using _lock = await waiting;
  });

  it('a lock that is still being written is not taken over', async () => {
    await writeFile(path, '');
    const refusal = refused(new RegExp(`^process ${process.ppid} is using`));
    for (let i = 0; i < 10; i++) await stat(path); // it has looked at the file by then
    await writeFile(path, String(process.ppid));
    await refusal;
  });

  it('a lock that a user has removed is not removed again from its next holder', async () => {
    {
      using _lock = await lock();
      await rm(path);
      await writeFile(path, String(process.ppid));
    }
    assert.deepEqual(await readdir(folder), ['.lock']);
  });
});
