import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { mean, median, quantile, sum } from '../../../shared/base/statistics.js';

describe('statistics of a list of numbers', () => {
  it('are its sum and its mean', () => {
    assert.equal(sum(Float64Array.of(1, 2, 6)), 9);
    assert.equal(mean([1, 2, 6]), 3);
  });

  it('interpolate quantiles linearly between the two nearest ranks', () => {
    assert.equal(quantile([1, 2, 3, 5], 0.5), 2.5);
    assert.equal(quantile([1, 2, 4], 0.25), 1.5);
    assert.deepEqual([quantile([1, 2, 4], 0), quantile([1, 2, 4], 1)], [1, 4]);
    assert.equal(quantile([7], 0.99), 7);
  });

  it('have a median that does not depend on the order and leaves the list unchanged', () => {
    const values = [10, 9, 1];
    assert.equal(median(values), 9);
    assert.deepEqual(values, [10, 9, 1]);
    assert.equal(median([4, 1]), 2.5);
  });

  it('are 0 for the sum of an empty list and NaN for everything else', () => {
    assert.deepEqual([sum([]), mean([]), median([]), quantile([], 0.5)], [0, NaN, NaN, NaN]);
  });
});
