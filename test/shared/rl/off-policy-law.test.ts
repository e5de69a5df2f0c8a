import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  allowedCount,
  allowedPairs,
  allowedTokens,
  mayTrainOn,
} from '../../../shared/rl/staleness-bound.js';

describe('the law of off-policy training, two steps at version 7', () => {
  const law = { version: 7, maxStepsOffPolicy: 2, rewinds: [] };
  const mixed: [number, number][] = [
    [3, 2],
    [5, 1],
    [7, 3],
  ];

  it('the law allows tokens up to the bound, and counts steps along the branches of the versions', () => {
    assert.deepEqual(
      [4, 5, 7].map((version) => mayTrainOn(version, law)),
      [false, true, true],
    );
    const restored = { ...law, rewinds: [{ from: 6, to: 2 }] }; // 7 is one step from 6, which is 2 again
    assert.deepEqual(
      [1, 2, 3, 5].map((version) => mayTrainOn(version, restored)),
      [true, true, true, false],
    );
  });

  it('the law allows a part of an answer that has tokens on both sides of the bound', () => {
    assert.deepEqual([...allowedTokens(mixed, law)!], [0, 0, 1, 1, 1, 1]);
    assert.equal(allowedCount(mixed, law), 4);
    assert.equal(allowedTokens(mixed.slice(1), law), undefined); // all may be trained on
    assert.deepEqual([...allowedTokens([[3, 2]], law)!], [0, 0]);
  });

  it('statistics of what is trained on leave out the tokens beyond the bound', () => {
    const pairs = {
      behavior: Float32Array.of(-1, -2, -3, -4, -5, -6),
      current: Float32Array.of(-6, -5, -4, -3, -2, -1),
      versions: mixed,
    };
    assert.deepEqual(allowedPairs(pairs, law), {
      behavior: Float32Array.of(-3, -4, -5, -6),
      current: Float32Array.of(-4, -3, -2, -1),
      versions: [
        [5, 1],
        [7, 3],
      ],
    });
    assert.equal(allowedPairs(pairs, { ...law, maxStepsOffPolicy: 4 }), pairs);
  });
});
