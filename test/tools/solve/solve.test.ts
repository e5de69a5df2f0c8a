import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { runOffbeat } from '../../support/offbeat.js';

const offbeat = (words: string) => runOffbeat(words.split(' '), tmpdir());

describe('offbeat solve', { timeout: 240_000 }, () => {
  it('offbeat solve shows the best solution', async () => {
    assert.deepEqual(await offbeat('solve 3 7 21 84'), {
      code: 0,
      out: '(21+7)*3 = 84\n',
      err: '',
    });
  });

  it('offbeat solve shows all solutions, the best first', async () => {
    const { out } = await offbeat('solve 3 7 21 84 --all');
    assert.equal(out, '(21+7)*3 = 84\n21*(7-3) = 84\n');
  });

  it('offbeat solve says if there is no solution, and shows the nearest result', async () => {
    const { code, out } = await offbeat('solve 3 7 21 64');
    assert.equal(code, 1);
    assert.equal(out, 'no solution; the nearest is 21*3+7 = 70\n');
  });

  it('offbeat solve may leave numbers out', async () => {
    assert.equal((await offbeat('solve 3 7 21 24')).code, 1);
    assert.equal((await offbeat('solve --some 3 7 21 24')).out, '21+3 = 24\n');
  });

  it('offbeat solve reaches targets below zero', async () => {
    assert.equal((await offbeat('solve 3 7 -4')).out, '3-7 = -4\n');
  });

  it('offbeat solve answers in JSON', async () => {
    const { code, out } = await offbeat('solve 3 7 21 84 --all --json');
    const best = { text: '(21+7)*3', value: '84', numbersUsed: 3 };
    assert.equal(code, 0);
    assert.deepEqual(JSON.parse(out), {
      numbers: [3, 7, 21],
      target: 84,
      numbersToUse: 'all',
      count: 2,
      solutions: [best, { ...best, text: '21*(7-3)' }],
      nearest: best,
    });
    const none = JSON.parse((await offbeat('solve 3 7 21 64 --json')).out) as object;
    assert.deepEqual(
      { ...none, numbersToUse: 0 },
      {
        ...{ numbers: [3, 7, 21], target: 64, numbersToUse: 0, count: 0, solutions: [] },
        nearest: { text: '21*3+7', value: '70', numbersUsed: 3 },
      },
    );
  });

  it('offbeat solve tries every problem of a data file', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-solve-'));
    const run = (...words: string[]) => runOffbeat(['solve', ...words], folder);
    await writeFile(join(folder, 'good.csv'), 'nums,target\n"[3, 7, 21]",84\n"[3, 7]",-4\n');
    const rows = [
      { nums: [3, 7, 21], target: 64 },
      { nums: [3, 7, 21], target: 84 },
      { nums: [3, 7, 21], target: 24 },
    ];
    await writeFile(join(folder, 'mixed.jsonl'), rows.map((row) => JSON.stringify(row)).join('\n'));
    await writeFile(join(folder, 'wide.jsonl'), '{"nums": [1, 2, 3, 4, 5, 6, 7], "target": 9}');

    assert.deepEqual(await run('--rows=good.csv'), {
      ...{ code: 0, out: '2 of 2 problems have a solution\n', err: '' },
    });
    const mixed = await run('--rows=mixed.jsonl');
    assert.equal(mixed.code, 1);
    assert.match(mixed.out, /^1 of 3 .*\n {2}not 3 7 21 64; the nearest is 21\*3\+7 = 70\n {2}not/);
    const some = await run('--rows=mixed.jsonl', '--some', '--json');
    const { problems, solvable, unsolvable } = JSON.parse(some.out) as Record<string, unknown>;
    assert.deepEqual([problems, solvable], [3, 2]);
    assert.equal((unsolvable as { target: number }[])[0]!.target, 64);
    assert.match((await run('--rows=wide.jsonl')).err, /has a problem with 7 numbers .*at most 6/);
    assert.match(
      (await run('--rows', 'good.txt')).err,
      /^--rows good\.txt is of an unknown kind; name a file that ends in/,
    );
    await writeFile(join(folder, 'bad.jsonl'), '{"nums": "3 7", "target": 9}\n{"nums": [3, 7]}');
    assert.match(
      (await run('--rows=bad.jsonl')).err,
      /line 1: nums is "3 7": expected a list\n.*line 2: target: it is missing$/m,
    );
    await writeFile(join(folder, 'empty.csv'), 'nums,target\n');
    assert.match((await run('--rows=empty.csv')).err, /^--rows empty\.csv has no problem\n/);
    assert.match((await run('--rows=good.csv', '3', '4')).err, /from the file; remove 3/);
    await rm(folder, { recursive: true });
  });

  const refused: [words: string, says: RegExp][] = [
    ['solve 3', /has 0 numbers beside the target; give 1 to 6 .*offbeat solve 3 7 21 84/],
    ['solve 1 2 3 4 5 6 7 8', /has 7 numbers/],
    ['solve 3 -7 21', /cannot take -7/],
    ['solve 3 7.5 21', /cannot take 7\.5; give whole numbers/],
    ['solve 3 7 99999999999999999999', /cannot take 99999999999999999999; give numbers up to/],
  ];
  for (const [words, says] of refused) {
    it(`offbeat solve refuses ${words}`, async () => {
      const { code, err } = await offbeat(words);
      assert.equal(code, 2);
      assert.match(err, says);
    });
  }
});
