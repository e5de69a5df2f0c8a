import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { packageRoot } from '../../../shared/base/package-root.js';

describe('the stack of an error', () => {
  const run = async (script: string) => {
    const args = ['--input-type=module', '--eval', script];
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

  it('the stack of an error without a source map names the file as it is', async () => {
    const stack = await run(`${naming} console.log(new Error('here').stack);`);
    assert.match(stack, /^Error: here\n    at file:\/\/\/.*\[eval1\]:1:\d+\n/);
  });
});
