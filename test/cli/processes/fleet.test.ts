import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Fleet, FleetError, type Member } from '../../../cli/processes/fleet.js';
import { freePort } from '../../../cli/processes/free-port.js';
import { ManagedProcess, tieToParent } from '../../../cli/processes/managed-process.js';
import { isRunning } from '../../support/processes.js';
import { never, until } from '../../support/waiting.js';

/** Serves /readyz and ends in order at SIGTERM. */
const healthy = `
  require('node:http').createServer((_, response) => response.end('ready'))
    .listen(Number(process.env.PORT), '127.0.0.1', () => console.log('pid', process.pid));
  process.on('SIGTERM', () => { console.log('ends', process.env.NAME, Date.now()); process.exit(0); });`;

function member(name: string, program: string, more: Partial<Member> = {}): Member {
  return {
    name,
    whenItEnds: 'restarts',
    stopRank: 1,
    stopGraceMs: 10_000,
    command: async () => {
      const port = await freePort();
      return {
        file: process.execPath,
        args: ['--eval', program],
        env: { PORT: String(port), NAME: name },
        healthUrl: `http://127.0.0.1:${port}`,
      };
    },
    ...more,
  };
}

describe('a fleet of processes', { timeout: 60_000 }, () => {
  let folder: string;
  let fleet: Fleet;
  let hurry: AbortController;
  const reports: string[] = [];

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-fleet-'));
    reports.length = 0;
    hurry = new AbortController();
    fleet = new Fleet({
      logFolder: folder,
      report: (line) => reports.push(line),
      hurry: hurry.signal,
    });
  });
  afterEach(async () => {
    await fleet[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  const log = (name: string) => readFile(join(folder, `${name}.log`), 'utf8');
  const pids = async (name: string) =>
    [...(await log(name)).matchAll(/pid (\d+)/g)].map((match) => Number(match[1]));
  const failure = async () => {
    if (!fleet.failed.aborted) await once(fleet.failed, 'abort');
    assert(fleet.failed.reason instanceof FleetError);
    return fleet.failed.reason;
  };

  it('a fleet is ready once every member is, and ends its members in the order of their ranks', async () => {
    void fleet.start(member('backend', healthy, { stopRank: 2 }));
    void fleet.start(member('learner', healthy, { stopRank: 0 }));
    await fleet.ready(['backend', 'learner'], 30_000, never);
    await fleet.stop();
    const endedAt = async (name: string) => Number(/ends \w+ (\d+)/.exec(await log(name))?.[1]);
    assert((await endedAt('learner')) <= (await endedAt('backend')));
    for (const name of ['backend', 'learner']) {
      for (const pid of await pids(name)) assert(!isRunning(pid));
    }
    assert.deepEqual(reports, []);
  });

  const unready = healthy.replace(
    `response.end('ready')`,
    `(response.statusCode = 503, response.end('loading'))`,
  );

  it('a fleet names the members that are not ready, with the reasons that they give', async () => {
    void fleet.start(member('slow', unready));
    void fleet.start(member('quick', healthy));
    await fleet.ready(['quick'], 30_000, never);
    await assert.rejects(fleet.ready(['slow', 'quick'], 5_000, never), (error) => {
      assert(error instanceof FleetError);
      assert.match(error.message, /slow is not ready: (loading|it does not answer yet)/);
      assert.doesNotMatch(error.message, /quick/);
      return true;
    });
  });

  it('a fleet reports members that take long to become ready, with the reasons that they give', async () => {
    void fleet.start(member('slow', unready));
    const stop = new AbortController();
    const waiting = fleet.ready(['slow'], 30_000, stop.signal, 20);
    await until(() => reports.length > 0);
    await sleep(100); // for five reports, if each were made
    stop.abort();
    await waiting;
    assert.deepEqual(reports, ['slow is not ready yet: loading']);
  });

  it('a fleet asks the next process of a member that ended before it was ready', async () => {
    const fails = unready.replace(/$/, `; setTimeout(() => process.exit(1), 300)`);
    let starts = 0;
    const command = () => member('slow', starts++ === 0 ? fails : healthy).command();
    void fleet.start(member('slow', '', { command }));
    await fleet.ready(['slow'], 30_000, never);
    assert.equal(starts, 2);
  });

  it('a fleet restarts a killed member and reports the reason', async () => {
    void fleet.start(member('actor-0', healthy));
    await fleet.ready(['actor-0'], 30_000, never);
    const [first] = await pids('actor-0');
    process.kill(first!, 'SIGKILL');
    while ((await pids('actor-0')).length < 2) await sleep(50);
    assert.match(
      reports.join(),
      /^actor-0 was killed by SIGKILL; starting it again in 1 s \(1 of 5\)\. Its last words: pid \d+$/,
    );
    assert(!fleet.failed.aborted);
  });

  it('a fleet fails with the end of the log if a process ends that nothing starts again', async () => {
    const program = `console.log(JSON.stringify({ level: 60, time: '2026-11-21T01:02:03.000Z', msg: 'crashed', err: { stack: 'Error: boom' } })); process.exit(1);`;
    const command = { file: process.execPath, args: ['--eval', program] };
    const server = new ManagedProcess(command, fleet.logPath('server'));
    fleet.adopt('server', server, { stopRank: 1, stopGraceMs: 0 });
    const { message, exitCode } = await failure();
    assert.match(
      message,
      /^server ended with code 1; the end of .*server\.log:\n {2}\| 01:02:03 fatal crashed\n {2}\| Error: boom$/,
    );
    assert.equal(exitCode, 1);
  });

  it('a fleet does not restart a member whose error only the user can fix', async () => {
    void fleet.start(member('actor-0', `console.error('wrong model'); process.exit(2);`));
    const { message, exitCode } = await failure();
    assert.match(message, /actor-0 ended with code 2[^]*wrong model/);
    assert.equal(exitCode, 2);
    assert.deepEqual(reports, []);
  });

  it('a fleet lets a member finish', async () => {
    await fleet.start(member('learner', '', { whenItEnds: 'finishes' }));
    assert(!fleet.failed.aborted);
  });

  it('a fleet does not report a member that ends before it handles signals, which has nothing to save', async () => {
    const starting = "console.log('started'); setInterval(() => {}, 1e6);";
    void fleet.start(member('learner', starting, { whenItEnds: 'finishes' }));
    while (!(await log('learner').catch(() => '')).includes('started')) await sleep(50);
    await fleet.stop();
    assert.deepEqual(reports, []);
  });

  it('a fleet takes diverged training as an end, which the summary reports', async () => {
    await fleet.start(member('learner', 'process.exit(3)', { whenItEnds: 'finishes' }));
    assert(!fleet.failed.aborted);
  });

  it('a fleet kills a member that does not end, with the children of that member, and reports it', async () => {
    const stubborn = `
      process.on('SIGTERM', () => {});
      const child = require('node:child_process').spawn('sleep', ['600']);
      console.log('pid', child.pid); console.log('pid', process.pid);
      setInterval(() => {}, 1e6);`;
    void fleet.start(member('stubborn', stubborn, { stopGraceMs: 300 }));
    while (!(await log('stubborn').catch(() => '')).includes('pid')) await sleep(50);
    await fleet.stop();
    for (const pid of await pids('stubborn')) assert(!isRunning(pid));
    assert.match(reports.join(), /stubborn was killed by SIGKILL while it was asked to end/);
  });

  it('a member that starts while another process is renewed waits until the old process has ended', async () => {
    const deaf = `process.on('SIGTERM', () => {}); console.log('pid', process.pid); setInterval(() => {}, 1e6);`;
    const launch = (signal?: AbortSignal) => {
      signal?.throwIfAborted();
      const args = ['--eval', deaf];
      return new ManagedProcess({ file: process.execPath, args }, fleet.logPath('server'));
    };
    const before = launch();
    const place = { stopRank: 2, stopGraceMs: 0 };
    fleet.adopt('server', before, place, (signal) => Promise.resolve(launch(signal)));
    while (!(await log('server').catch(() => '')).includes('pid')) await sleep(20);
    void fleet.renew('server', 1_000);
    const asks = `try { process.kill(${before.pid}, 0); console.log('old'); } catch { console.log('new'); }`;
    void fleet.start(member('actor-0', `${asks} setInterval(() => {}, 1e6);`, { stopGraceMs: 0 }));
    while ((await log('actor-0').catch(() => '')) === '') await sleep(20);
    assert.equal(await log('actor-0'), 'new\n');
  });

  it('a server that comes up again while the fleet is being stopped is ended too', async () => {
    const launch = () =>
      new ManagedProcess(
        { file: process.execPath, args: ['--eval', 'setInterval(() => {}, 1e6)'] },
        fleet.logPath('server'),
      );
    const place = { stopRank: 2, stopGraceMs: 1_000 };
    let late: ManagedProcess | undefined;
    const stopped = new Promise<void>((resolve, reject) => {
      fleet.adopt('server', launch(), place, () => {
        fleet.stop().then(resolve, reject);
        return Promise.resolve((late = launch()));
      });
    });
    void fleet.renew('server', 1_000);
    await stopped;
    assert(!isRunning(late!.pid!));
  });

  it('a server that is being started again when the fleet is stopped comes up for the members that end before it', async () => {
    const place = join(folder, 'server is up');
    const learner = `
      const isUp = () => require('node:fs').existsSync(process.env.PLACE) && process.exit(0);
      process.on('SIGTERM', () => { console.log('asked to end'); setInterval(isUp, 20); });
      console.log('begun'); setInterval(() => {}, 1e6);`;
    const command = () =>
      Promise.resolve({
        ...{ file: process.execPath, args: ['--eval', learner], env: { PLACE: place } },
        healthUrl: 'http://127.0.0.1:1',
      });
    void fleet.start(member('learner', '', { whenItEnds: 'finishes', stopRank: 0, command }));
    const learnerSays = async (what: string) => {
      while (!(await log('learner').catch(() => '')).includes(what)) await sleep(20);
    };
    await learnerSays('begun');
    const launch = () =>
      new ManagedProcess(
        { file: process.execPath, args: ['--eval', 'setInterval(() => {}, 1e6)'] },
        fleet.logPath('server'),
      );
    let late: ManagedProcess | undefined;
    const stopped = new Promise<void>((resolve, reject) => {
      fleet.adopt('server', launch(), { stopRank: 2, stopGraceMs: 1_000 }, async (signal) => {
        fleet.stop().then(resolve, reject);
        await learnerSays('asked to end');
        signal.throwIfAborted();
        await writeFile(place, '');
        return (late = launch());
      });
    });
    void fleet.renew('server', 1_000);
    await stopped;
    assert.deepEqual(reports, []);
    assert(!isRunning(late!.pid!));
  });

  it('a member that the old process refused for good is started once more after its renewal', async () => {
    const runs = { PORT: '0', RUNS: join(folder, 'runs') };
    const program = `const { appendFileSync, readFileSync } = require('node:fs');
      appendFileSync(process.env.RUNS, 'x');
      console.log('run', readFileSync(process.env.RUNS, 'utf8').length);
      setTimeout(() => process.exit(2), 500);`;
    const args = ['--eval', 'setInterval(() => {}, 1e6)'];
    const launch = () =>
      new ManagedProcess({ file: process.execPath, args }, fleet.logPath('server'));
    const place = { stopRank: 2, stopGraceMs: 0 };
    fleet.adopt('server', launch(), place, () => Promise.resolve(launch()));
    const command = () =>
      Promise.resolve({
        ...{ file: process.execPath, args: ['--eval', program], env: runs },
        healthUrl: 'http://127.0.0.1:1',
      });
    void fleet.start(member('actor-0', '', { command }));
    while (!(await log('actor-0').catch(() => '')).includes('run 1')) await sleep(20);
    await fleet.renew('server', 1_000);
    const { exitCode } = await failure();
    assert.deepEqual([exitCode, await log('actor-0')], [2, 'run 1\nrun 2\n']);
  });

  it('a fleet ends its members without waiting when it is hurried', async () => {
    const stubborn = `process.on('SIGTERM', () => {}); console.log('pid', process.pid); setInterval(() => {}, 1e6);`;
    void fleet.start(member('stubborn', stubborn, { stopGraceMs: 1e6 }));
    while (!(await log('stubborn').catch(() => '')).includes('pid')) await sleep(50);
    const stopping = fleet.stop();
    hurry.abort();
    await stopping; // and not in 1,000 s
  });
});

describe('a child that cannot watch its standard input', { timeout: 60_000 }, () => {
  it('a child gets a signal that comes while its shell is starting', async () => {
    const body = 'trap "exit 7" TERM; kill -TERM $PPID; while :; do sleep 0.05; done';
    const { file, args } = tieToParent({ file: '/bin/sh', args: ['-c', body] });
    for (let round = 0; round < 20; round++) {
      const shell = spawn(file, args, { stdio: ['pipe', 'ignore', 'ignore'] });
      const ended = await once(shell, 'exit');
      shell.stdin.destroy();
      assert.deepEqual(ended, [7, null]);
    }
  });

  const url = (name: string) => new URL(`../../../cli/processes/${name}`, import.meta.url).href;
  const launcher = `
    const { ManagedProcess } = await import('${url('managed-process.js')}');
    const { tieToParent } = await import('${url('managed-process.js')}');
    const shell = new ManagedProcess(tieToParent({ file: '/bin/sh', args: ['-c', 'echo $$; exec sleep 600'] }), process.argv[1]);
    console.log(shell.pid);
    setInterval(() => {}, 1e6);`;

  for (const victims of ['the launcher', 'the launcher and the shell between them']) {
    it(`a child ends when ${victims} is killed`, async () => {
      const folder = await mkdtemp(join(tmpdir(), 'offbeat-tie-'));
      const logPath = join(folder, 'log');
      const child = spawn(process.execPath, ['--input-type=module', '--eval', launcher, logPath], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const [shellPid] = (await once(child.stdout, 'data')) as [Buffer];
      let program = 0;
      while (program === 0) {
        program = Number(await readFile(logPath, 'utf8').catch(() => '')) || 0;
        await sleep(20);
      }
      assert(isRunning(program));
      if (victims !== 'the launcher') process.kill(Number(shellPid), 'SIGKILL');
      child.kill('SIGKILL');
      while (isRunning(program)) await sleep(20);
      await rm(folder, { recursive: true });
    });
  }
});
