import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { describe, it } from 'node:test';
import { runOffbeat } from '../../support/offbeat.js';

const offbeat = (words: string) => runOffbeat(words.split(' '), tmpdir());

describe('offbeat solve', { timeout: 60_000 }, () => {
  it('shows the best solution', async () => {
    assert.deepEqual(await offbeat('solve 3 7 21 84'), {
      code: 0,
      out: '(21+7)*3 = 84\n',
      err: '',
    });
  });

  it('shows all of them, the best first', async () => {
    const { out } = await offbeat('solve 3 7 21 84 --all');
    assert.equal(out, '(21+7)*3 = 84\n21*(7-3) = 84\n');
  });

  it('says when there is none, and what comes nearest', async () => {
    const { code, out } = await offbeat('solve 3 7 21 64');
    assert.equal(code, 1);
    assert.equal(out, 'no solution; the nearest is 21*3+7 = 70\n');
  });

  it('may leave numbers out', async () => {
    assert.equal((await offbeat('solve 3 7 21 24')).code, 1);
    assert.equal((await offbeat('solve --some 3 7 21 24')).out, '21+3 = 24\n');
  });

  it('reaches targets below zero', async () => {
    assert.equal((await offbeat('solve 3 7 -4')).out, '3-7 = -4\n');
  });

  it('answers in JSON', async () => {
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

  const refused: [words: string, says: RegExp][] = [
    ['solve 3', /has 0 numbers beside the target; give 1 to 6 .*offbeat solve 3 7 21 84/],
    ['solve 1 2 3 4 5 6 7 8', /has 7 numbers/],
    ['solve 3 -7 21', /cannot take -7/],
    ['solve 3 7.5 21', /7\.5 is not a flag/],
    ['solve 3 7 99999999999999999999', /cannot take 100000000000000000000/],
  ];
  for (const [words, says] of refused) {
    it(`refuses ${words}`, async () => {
      const { code, err } = await offbeat(words);
      assert.equal(code, 2);
      assert.match(err, says);
    });
  }
});
