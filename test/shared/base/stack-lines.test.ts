import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { packageRoot } from '../../../shared/base/package-root.js';

describe('the stack of an error', () => {
  const run = async (script: string) => {
    const args = ['--eval', `void (async () => {${script}})()`];
    return (await promisify(execFile)(process.execPath, args, { cwd: packageRoot })).stdout;
  };
  const naming = `(await import('./dist/shared/base/stack-lines.js')).nameSourceLines();`;
  const failing = `
    const { groupAdvantages } = await import('./dist/shared/rl/advantages.js');
    try { groupAdvantages('maxrl', [1]); } catch (error) { console.log(error.stack); }`;

  it('the stack of an error names the line of the TypeScript source', async () => {
    const source = join(packageRoot, 'shared/rl/advantages.ts');
    const lines = (await readFile(source, 'utf8')).split('\n');
    const line =
      1 + lines.findIndex((text) => text.includes('a group of ${rewards.length} has nothing'));
    const [head, first] = (await run(naming + failing)).split('\n');
    assert.equal(head, 'RangeError: groupAdvantages: a group of 1 has nothing to compare');
    assert.equal(first, `    at groupAdvantages (${source}:${line}:11)`);
    assert(!(await run(failing)).includes(source), 'it does so by itself');
  });

  it('the stack of an error in a worker thread names the line of the TypeScript source too', async () => {
    const stack = await run(`
      const { WorkerCalls } = await import('./dist/shared/service/worker-calls.js');
      const calls = new WorkerCalls(new URL('${pathToFileURL(join(packageRoot, 'dist/test/shared/service/calls-worker.js')).href}'));
      await calls.call('fail', { kind: 'other' }).catch((error) => console.log(error.stack));
      await calls[Symbol.asyncDispose]();`);
    assert.match(
      stack,
      /^RangeError: the code\n    at .*\/test\/shared\/service\/calls-worker\.ts:\d+:11\)?\n/,
    );
  });

  it('the stack of a failed assertion names its code once, as without the sources', async () => {
    const stackOf = `
      const assert = await import('node:assert/strict');
      try { assert.equal(1, 2); } catch (error) { console.log(error.stack.split('\\n')[0]); }`;
    const plain = await run(stackOf);
    assert.match(plain, /^AssertionError \[ERR_ASSERTION\]: Expected/);
    assert.equal(await run(naming + stackOf), plain);
  });

  it('the stack that the NATS client takes of each close names the compiled lines, for which no map is read', async () => {
    const closing = failing.replace('console.log', "error.message = 'close trace'; console.log");
    const [head, first] = (await run(naming + closing)).split('\n');
    assert.equal(head, 'RangeError: close trace');
    assert.match(first!, /at groupAdvantages \(file:.*\/dist\/shared\/rl\/advantages\.js:/);
  });

  it('the stack of an error without a source map names the file as it is', async () => {
    const stack = await run(`${naming}
      const { whyInstallIsStale } = await import('./cli/staleness.mjs');
      try { whyInstallIsStale('/nowhere'); } catch (error) { console.log(error.stack); }`);
    const file = pathToFileURL(join(packageRoot, 'cli/staleness.mjs')).href;
    assert.match(stack, /^Error: ENOENT: no such file/);
    assert(stack.includes(`    at whyInstallIsStale (${file}:`), stack);
  });
});
