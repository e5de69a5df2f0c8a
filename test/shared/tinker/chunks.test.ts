import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { combineResults, datumBytes, splitData } from '../../../shared/tinker/chunks.js';
import { datum } from './strict-run.js';

const tokens = (length: number) => datum(...new Array<number>(length).fill(1));

describe('data cut into requests', () => {
  it('a datum counts 4 bytes a token, 8 a target and 4 an input', () => {
    assert.equal(datumBytes(tokens(10)), 10 * (4 + 8 + 4 + 4));
  });

  it('a new request starts at the limit of datums', () => {
    const chunks = splitData([1, 1, 1, 1, 1].map(tokens), { maxLength: 2, maxBytes: 1e9 });
    assert.deepEqual(
      chunks.map((chunk) => chunk.length),
      [2, 2, 1],
    );
  });

  it('a new request starts at the limit of bytes, and a larger datum is sent alone', () => {
    const chunks = splitData([5, 5, 1, 50, 1].map(tokens), { maxLength: 99, maxBytes: 200 });
    assert.deepEqual(
      chunks.map((chunk) => chunk.map((item) => item.tokens.length)),
      [[5, 5], [1], [50], [1]],
    );
  });

  it('the requests keep every datum in order, whatever the limits', () => {
    const lengths = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 30 });
    const limit = fc.integer({ min: 1, max: 500 });
    fc.assert(
      fc.property(lengths, limit, limit, (sizes, maxLength, maxBytes) => {
        const chunks = splitData(sizes.map(tokens), { maxLength, maxBytes });
        assert.deepEqual(
          chunks.flat().map((item) => item.tokens.length),
          sizes,
        );
        for (const chunk of chunks) {
          const bytes = chunk.reduce((sum, item) => sum + datumBytes(item), 0);
          assert(chunk.length <= maxLength && (bytes <= maxBytes || chunk.length === 1));
        }
      }),
    );
  });
});

describe('the combined results of chunks', () => {
  const part = (datums: number, metrics: Record<string, number>) => ({
    logprobs: Array.from({ length: datums }, () => Float32Array.of(-datums)),
    metrics,
  });

  it('a combined metric follows the reduction in its name; a mean is weighted by datums', () => {
    const { logprobs, metrics } = combineResults([
      part(1, { 'loss:sum': 1, 'a:min': 3, 'a:max': 3, 'a:mean': 3, 'b:slack': 3, 'c:unique': 7 }),
      part(3, { 'loss:sum': 2, 'a:min': 5, 'a:max': 5, 'a:mean': 5, 'b:slack': 5, 'c:unique': 8 }),
    ]);
    assert.equal(logprobs.length, 4);
    assert.deepEqual(metrics, {
      'loss:sum': 3,
      'a:min': 3,
      'a:max': 5,
      'a:mean': 4.5,
      'b:slack': 0.5,
      'c:unique': 7,
      'c:unique_1': 8,
    });
  });

  it('a combined result drops metrics that a chunk lacks, and keeps an unknown metric only if all agree', () => {
    const { metrics } = combineResults([
      part(1, { 'loss:sum': 1, extra: 1, same: 4, other: 1 }),
      part(1, { 'loss:sum': 1, same: 4, other: 2 }),
    ]);
    assert.deepEqual(metrics, { 'loss:sum': 2, same: 4 });
  });

  it('the result of a call with one chunk is unchanged', () => {
    const only = part(1, { 'no reduction': 1 });
    assert.equal(combineResults([only]), only);
  });
});
