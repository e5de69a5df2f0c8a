import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { mean, median, quantile, sum } from '../../../shared/base/statistics.js';

describe('statistics of a list of numbers', () => {
  it('the sum and the mean of a list are those of its numbers', () => {
    assert.equal(sum(Float64Array.of(1, 2, 6)), 9);
    assert.equal(mean([1, 2, 6]), 3);
  });

  it('the quantiles of a list are interpolated linearly between the two nearest ranks', () => {
    assert.equal(quantile([1, 2, 3, 5], 0.5), 2.5);
    assert.equal(quantile([1, 2, 4], 0.25), 1.5);
    assert.deepEqual([quantile([1, 2, 4], 0), quantile([1, 2, 4], 1)], [1, 4]);
    assert.equal(quantile([7], 0.99), 7);
  });

  it('the median of a list does not depend on the order and leaves the list unchanged', () => {
    const values = [10, 9, 1];
    assert.equal(median(values), 9);
    assert.deepEqual(values, [10, 9, 1]);
    assert.equal(median([4, 1]), 2.5);
  });

  it('the statistics of an empty list are NaN, except for its sum of 0', () => {
    assert.deepEqual([sum([]), mean([]), median([]), quantile([], 0.5)], [0, NaN, NaN, NaN]);
  });
});
