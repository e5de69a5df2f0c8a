import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { alternate, comparisonTable, quartiles, type Pair, type Side } from './comparison.js';

const round = (count: number, processor: number, wall = processor) => ({ count, processor, wall });

describe('the comparison with a peer', () => {
  it('both sides do a round in turn, and each begins every other time', async () => {
    const order: string[] = [];
    const side = (name: string): Side => ({
      round: () => {
        order.push(name);
        return Promise.resolve(round(order.length, 1));
      },
      [Symbol.asyncDispose]: () => Promise.resolve(),
    });
    const pairs = await alternate(side('ours'), side('peer'), 3);
    assert.deepEqual(order, ['ours', 'peer', 'peer', 'ours', 'ours', 'peer']);
    assert.deepEqual(
      pairs.map((pair) => pair.map(({ count }) => count)),
      [
        [1, 2],
        [4, 3],
        [5, 6],
      ],
    );
  });

  it('the ratio is the median of the pairs and not the ratio of the medians', () => {
    // Ours is twice as fast in each pair; the machine slows down and recovers.
    const pairs: Pair[] = [
      [round(200, 1), round(100, 1)],
      [round(200, 10), round(100, 10)],
      [round(200, 2), round(100, 2)],
    ];
    const [, , line] = comparisonTable(
      [{ row: 'r', side: 's', peer: 'p', pairs, limit: 400 }],
      'processor',
    ).split('\n');
    assert.deepEqual(
      line!.split('|').map((cell) => cell.trim()),
      ['', 'r: s', '100', 'p', '50.0', '2.00 (2.00 to 2.00)', '400', '25 %', ''],
    );
  });

  it('the clock that is asked for decides', () => {
    const pairs: Pair[] = [[round(100, 1, 4), round(100, 1, 2)]];
    const cell = (clock: 'processor' | 'wall') =>
      comparisonTable([{ row: 'r', side: '', peer: 'p', pairs }], clock)
        .split('\n')[2]!
        .split('|')[5]!
        .trim();
    assert.equal(cell('processor'), '1.00 (1.00 to 1.00)');
    assert.equal(cell('wall'), '0.50 (0.50 to 0.50)');
  });

  it('a peer that is not here has a line with the reason', () => {
    const missing = 'cmake failed: not found';
    const text = comparisonTable([{ row: 'r', side: '', peer: 'p', pairs: [], missing }], 'wall');
    assert.match(text, /\| r +\| +\| p +\| not measured: cmake failed: not found \|/);
  });

  it('quartiles are interpolated', () => {
    assert.deepEqual(quartiles([4, 1, 3, 2]), [1.75, 2.5, 3.25]);
  });
});
