import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { judgeDivergence, type StepHealth } from '../../../shared/rl/divergence.js';

const limits = { maxKl: 0.5, minRewardShare: 0.5, patience: 2 };

/** Steps with these KLs and rewards. */
function steps(...values: [kl: number, reward: number | undefined][]): StepHealth[] {
  return values.map(([kl, reward], i) => ({ step: i + 1, kl, reward }));
}

describe('training, judged with a patience of 2 steps', () => {
  it('is healthy while KL and reward are in bounds', () => {
    const verdict = judgeDivergence(steps([0.1, 0.2], [0.5, 0.3]), limits);
    assert.deepEqual(verdict, { state: 'healthy', reason: '' });
  });

  it('is suspect at the first step above the KL bound, and diverged at the second in a row', () => {
    const rising = steps([0.1, 0.3], [0.6, 0.3], [0.7, 0.3]);
    assert.equal(judgeDivergence(rising.slice(0, 2), limits).state, 'suspect');
    const verdict = judgeDivergence(rising, limits);
    assert.equal(verdict.state, 'diverged');
    assert.match(verdict.reason, /is 0.7 nats a token, above 0.5/);
  });

  it('is forgiven when the KL comes back', () => {
    const outlier = steps([0.6, 0.3], [0.1, 0.3], [0.6, 0.3]);
    assert.equal(judgeDivergence(outlier, limits).state, 'suspect');
    assert.equal(judgeDivergence(outlier.slice(0, 2), limits).state, 'healthy');
  });

  it('is diverged at once when the KL is no number', () => {
    const { state, reason } = judgeDivergence(steps([0.1, 0.3], [NaN, 0.3]), limits);
    assert.deepEqual([state, reason], ['diverged', "the policy's logprobs are not finite"]);
  });

  it('collapses when the reward stays below the share of its best average', () => {
    // Averages of two: 0.4, 0.3, 0.15, 0.1; the best is 0.4.
    const falling = steps([0, 0.4], [0, 0.4], [0, 0.2], [0, 0.1], [0, 0.1]);
    assert.equal(judgeDivergence(falling.slice(0, 3), limits).state, 'healthy');
    assert.equal(judgeDivergence(falling.slice(0, 4), limits).state, 'suspect');
    const verdict = judgeDivergence(falling, limits);
    assert.equal(verdict.state, 'diverged');
    assert.match(verdict.reason, /over 2 steps is 0.1, less than 0.5 of its best, 0.4/);
  });

  it('passes over steps whose reward is not known', () => {
    const gaps = steps([0, 0.4], [0, undefined], [0, 0.4], [0, undefined]);
    assert.equal(judgeDivergence(gaps, limits).state, 'healthy');
  });

  it('ends for nothing but broken numbers when no bound is set', () => {
    const none = { maxKl: Infinity, minRewardShare: 0, patience: 2 };
    assert.equal(judgeDivergence(steps([9, 0.5], [9, 0.5], [9, 0]), none).state, 'healthy');
  });
});
