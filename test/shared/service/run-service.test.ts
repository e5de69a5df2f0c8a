import assert from 'node:assert/strict';
import { type ChildProcess, spawn, type StdioOptions } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { SmallDisk } from '../../support/small-disk.js';

/** A real process that runs `main` as a service; `main` sees log, signal, UserError and sleep. */
function serviceProcess(
  main: string,
  env: Record<string, string> = {},
  stdio: StdioOptions = ['pipe', 'pipe', 'pipe'],
) {
  const shared = new URL('../../../shared/', import.meta.url).href;
  const program = `
    const { runService } = await import('${shared}service/run-service.js');
    const { UserError } = await import('${shared}base/errors.js');
    const { setTimeout: sleep } = await import('node:timers/promises');
    const aborted = (signal) => new Promise((resolve) => {
      const alive = setInterval(() => undefined, 1_000);
      signal.addEventListener('abort', () => (clearInterval(alive), resolve()));
    });
    await runService('tester', async ({ log, signal }) => { ${main} });`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio,
    env: { ...process.env, ...env },
  });
  const output = { out: '', err: '' };
  child.stdout?.on('data', (chunk: Buffer) => (output.out += chunk.toString()));
  child.stderr?.on('data', (chunk: Buffer) => (output.err += chunk.toString()));
  return { child, output };
}

async function exitOf(child: ChildProcess): Promise<[number | null, string | null]> {
  return (await once(child, 'close')) as [number | null, string | null];
}

async function started(child: ChildProcess): Promise<void> {
  await once(child.stdout!, 'data');
}

describe('a service', { timeout: 60_000 }, () => {
  it('a service ends with code 0 when its work is done', async () => {
    const { child } = serviceProcess('await sleep(1);');
    assert.deepEqual(await exitOf(child), [0, null]);
  });

  it('a service continues while the disk of its log is full, and writes the log once there is room', async (context) => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-service-'));
    using disk = SmallDisk.at(folder, 100_000);
    if (disk === undefined) {
      context.skip('needs the right to mount a file system');
      return;
    }
    const output = join(folder, 'log');
    const file = openSync(output, 'a');
    disk.fill();
    const main = `
      const { printError } = await import('${new URL('../../../shared/service/telemetry/print-error.js', import.meta.url).href}');
      const { diskTrouble } = await import('${new URL('../../../shared/service/telemetry/disk-room.js', import.meta.url).href}');
      for (let i = 0; i < 50; i++) log.info({ i }, 'line');
      printError('words for people');
      await sleep(20);
      process.send(diskTrouble());
      await aborted(signal);`;
    const { child } = serviceProcess(main, {}, ['pipe', file, file, 'ipc']);
    closeSync(file);
    assert.match(String((await once(child, 'message'))[0]), /^the disk is full: cannot write log/);
    disk.clear();
    while (!readFileSync(output, 'utf8').includes('"i":49')) await sleep(50);
    child.kill('SIGTERM');
    assert.deepEqual(await exitOf(child), [0, null]);
    const lines = readFileSync(output, 'utf8')
      .split('\n')
      .filter((line) => line.includes('"line"'));
    assert.equal(lines.length, 50);
  });

  it('a service ends with code 1 and a stack in its log when it crashes', async () => {
    const { child, output } = serviceProcess(`throw new RangeError('boom');`);
    assert.deepEqual(await exitOf(child), [1, null]);
    assert.match(output.out, /"msg":"crashed"/);
    assert.match(output.out, /RangeError: boom\\n +at /);
  });

  it('a service ends with code 2 and the plain remedy if the user must change something', async () => {
    const { child, output } = serviceProcess(`throw new UserError('use another port');`);
    assert.deepEqual(await exitOf(child), [2, null]);
    assert.equal(output.err, 'use another port\n');
  });

  it('a service logs from info on if the variable of the level is empty', async () => {
    const main = `log.debug('hidden'); log.info('shown');`;
    const { child, output } = serviceProcess(main, { LOG_LEVEL: '' });
    assert.deepEqual(await exitOf(child), [0, null]);
    assert.match(output.out, /"msg":"shown"/);
    assert.doesNotMatch(output.out, /hidden/);
  });

  it('a service names the levels of the log with code 2 if it was given an unknown one', async () => {
    const { child, output } = serviceProcess(`log.info('up');`, { LOG_LEVEL: 'warning' });
    assert.deepEqual(await exitOf(child), [2, null]);
    const complaint =
      'LOG_LEVEL is "warning": expected one of trace, debug, info, warn, error, fatal, silent';
    assert.equal(output.err, `${complaint}\n`);
    assert.match(output.out, /"level":60.*LOG_LEVEL is/);
    assert.doesNotMatch(output.out, /"msg":"up"/);
  });

  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    it(`a service finishes its work after ${name}, and takes a signal that npm repeats for the same one`, async () => {
      const { child, output } = serviceProcess(
        `log.info('up'); await aborted(signal); await sleep(200); log.info('finished');`,
      );
      await started(child);
      child.kill(name);
      child.kill(name);
      assert.deepEqual(await exitOf(child), [0, null]);
      assert.match(output.out, /finished/);
    });
  }

  it('a service ends at once at a second signal', async () => {
    const { child } = serviceProcess(`log.info('up'); await aborted(signal); await sleep(1e6);`);
    const exited = exitOf(child);
    await started(child);
    child.kill('SIGTERM');
    const again = setInterval(() => child.kill('SIGTERM'), 300);
    assert.deepEqual(await exited, [130, null]);
    clearInterval(again);
  });

  it('a service finishes when the launcher that holds its standard input is gone', async () => {
    const main = `log.info('up'); await aborted(signal); log.info('finished');`;
    const { child, output } = serviceProcess(main, { OFFBEAT_PARENT_PIPE: '1' });
    await started(child);
    child.stdin?.end();
    assert.deepEqual(await exitOf(child), [0, null]);
    assert.match(output.out, /the launcher is gone.*\n.*finished/);
  });

  it('a service ends by force if it cannot finish without its launcher', async () => {
    const main = `log.info('up'); await sleep(1e6);`;
    const { child } = serviceProcess(main, { OFFBEAT_PARENT_PIPE: '1' });
    await started(child);
    child.stdin?.end();
    assert.deepEqual(await exitOf(child), [1, null]);
  });

  it('a service neither waits for a launcher nor heeds one unless it was given one', async () => {
    const done = serviceProcess('await sleep(1);', { OFFBEAT_PARENT_PIPE: '1' });
    assert.deepEqual(await exitOf(done.child), [0, null]);

    const { child, output } = serviceProcess(
      `log.info('up'); await sleep(500); log.info('finished');`,
    );
    await started(child);
    child.stdin?.end();
    assert.deepEqual(await exitOf(child), [0, null]);
    assert.match(output.out, /finished/);
    assert.doesNotMatch(output.out, /launcher/);
  });
});
