import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { batchByLength } from '../../../shared/model/packing.js';

describe('batching by length', () => {
  it('batching puts sequences of similar length together, within the budget of padded tokens', () => {
    assert.deepEqual(batchByLength([9, 2, 8, 3], 16), [[1, 3], [2], [0]]);
  });

  it('batching gives a sequence that is longer than the budget its own batch', () => {
    assert.deepEqual(batchByLength([100, 1], 10), [[1], [0]]);
  });

  it('batching places every sequence exactly once and keeps to the budget', () => {
    const lengths = fc.array(fc.integer({ min: 1, max: 50 }), { maxLength: 60 });
    fc.assert(
      fc.property(lengths, fc.integer({ min: 1, max: 200 }), (all, budget) => {
        const batches = batchByLength(all, budget);
        assert.deepEqual(
          batches.flat().sort((a, b) => a - b),
          all.map((_, index) => index),
        );
        for (const batch of batches) {
          const padded = batch.length * Math.max(...batch.map((index) => all[index]!));
          assert.ok(padded <= budget || batch.length === 1);
        }
      }),
    );
  });
});
