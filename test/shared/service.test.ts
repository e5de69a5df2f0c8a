import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, it } from 'node:test';

/** A real process that runs `main` as a service; `main` sees log, signal, UserError and sleep. */
function serviceProcess(main: string, env: Record<string, string> = {}) {
  const shared = new URL('../../shared/', import.meta.url).href;
  const program = `
    const { runService } = await import('${shared}service.js');
    const { UserError } = await import('${shared}errors.js');
    const { setTimeout: sleep } = await import('node:timers/promises');
    const aborted = (signal) => new Promise((resolve) => {
      const alive = setInterval(() => undefined, 1_000);
      signal.addEventListener('abort', () => (clearInterval(alive), resolve()));
    });
    await runService('tester', async ({ log, signal }) => { ${main} });`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...process.env, ...env },
  });
  const output = { out: '', err: '' };
  child.stdout.on('data', (chunk: Buffer) => (output.out += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output.err += chunk.toString()));
  return { child, output };
}

async function exitOf(child: ChildProcess): Promise<[number | null, string | null]> {
  return (await once(child, 'close')) as [number | null, string | null];
}

async function started(child: ChildProcess): Promise<void> {
  await once(child.stdout!, 'data');
}

describe('a service', { timeout: 60_000 }, () => {
  it('ends with code 0 when its work is done', async () => {
    const { child } = serviceProcess('await sleep(1);');
    assert.deepEqual(await exitOf(child), [0, null]);
  });

  it('ends with code 1 and a stack in its log when it crashes', async () => {
    const { child, output } = serviceProcess(`throw new RangeError('boom');`);
    assert.deepEqual(await exitOf(child), [1, null]);
    assert.match(output.out, /"msg":"crashed"/);
    assert.match(output.out, /RangeError: boom\\n +at /);
  });

  it('ends with code 2 and the plain remedy when the user has something to change', async () => {
    const { child, output } = serviceProcess(`throw new UserError('use another port');`);
    assert.deepEqual(await exitOf(child), [2, null]);
    assert.equal(output.err, 'use another port\n');
  });

  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    it(`finishes its work after ${name}, and takes one that npm repeats for the same`, async () => {
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

  it('ends at once when it is asked again', async () => {
    const { child } = serviceProcess(`log.info('up'); await aborted(signal); await sleep(1e6);`);
    const exited = exitOf(child);
    await started(child);
    child.kill('SIGTERM');
    const again = setInterval(() => child.kill('SIGTERM'), 300);
    assert.deepEqual(await exited, [130, null]);
    clearInterval(again);
  });

  it('finishes when the launcher that holds its standard input is gone', async () => {
    const main = `log.info('up'); await aborted(signal); log.info('finished');`;
    const { child, output } = serviceProcess(main, { OFFBEAT_PARENT_PIPE: '1' });
    await started(child);
    child.stdin.end();
    assert.deepEqual(await exitOf(child), [0, null]);
    assert.match(output.out, /the launcher is gone.*\n.*finished/);
  });

  it('ends by force when it cannot finish without its launcher', async () => {
    const main = `log.info('up'); await sleep(1e6);`;
    const { child } = serviceProcess(main, { OFFBEAT_PARENT_PIPE: '1' });
    await started(child);
    child.stdin.end();
    assert.deepEqual(await exitOf(child), [1, null]);
  });

  it('does not wait for a launcher, nor heed one that it was not told of', async () => {
    const done = serviceProcess('await sleep(1);', { OFFBEAT_PARENT_PIPE: '1' });
    assert.deepEqual(await exitOf(done.child), [0, null]);

    const { child, output } = serviceProcess(
      `log.info('up'); await sleep(500); log.info('finished');`,
    );
    await started(child);
    child.stdin.end();
    assert.deepEqual(await exitOf(child), [0, null]);
    assert.match(output.out, /finished/);
    assert.doesNotMatch(output.out, /launcher/);
  });
});
