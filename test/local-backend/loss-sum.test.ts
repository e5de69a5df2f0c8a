import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { lossSum } from '../../local-backend/loss-sum.js';
import type { LossName } from '../../shared/rl/losses.js';

// One datum of two tokens: the first twice as likely as when sampled, the second half as likely.
const datum = {
  tokens: Int32Array.of(1, 2),
  targetTokens: Int32Array.of(2, 3),
  weights: Float32Array.of(1, 3),
  logprobs: Float32Array.of(-1, -1),
  advantages: Float32Array.of(2, -4),
};
const current = [Math.log(2) - 1, Math.log(0.5) - 1]; // ratios 2 and 0.5
const value = (loss: LossName, config: Record<string, number> = {}) =>
  lossSum(loss, config, [datum], [Float32Array.from(current)]);

function near(actual: number, expected: number): void {
  assert(Math.abs(actual - expected) < 1e-6, `${actual} is not ${expected}`);
}

describe('the loss of a forward pass', () => {
  it('is minus the weighted logprobs for cross_entropy', () => {
    near(value('cross_entropy'), -(current[0]! * 1 + current[1]! * 3));
  });

  it('is minus the ratio times the advantage for importance_sampling', () => {
    near(value('importance_sampling'), -(2 * 2 + 0.5 * -4)); // -2
  });

  it('takes the worse of both for ppo', () => {
    // min(4, 1.2·2) and min(-2, 0.8·-4)
    near(value('ppo', { clip_low_threshold: 0.8, clip_high_threshold: 1.2 }), -(2.4 - 3.2));
  });

  it('weighs logprobs by the clipped ratio for cispo', () => {
    const expected = -(1.5 * current[0]! * 2 + 0.5 * current[1]! * -4);
    near(value('cispo', { clip_low_threshold: 0, clip_high_threshold: 1.5 }), expected);
  });

  it('is refused for a datum without the arrays of the loss', () => {
    const bare = { tokens: datum.tokens, targetTokens: datum.targetTokens };
    assert.throws(
      () => lossSum('ppo', {}, [datum, bare], [datum.logprobs, datum.logprobs]),
      /ppo: data\[1\] needs 2 logprobs, found none/,
    );
  });

  it('charges the squared log ratio for dro', () => {
    const penalty = 0.5 * 0.1 * (Math.log(2) ** 2 + Math.log(0.5) ** 2);
    near(value('dro', { beta: 0.1 }), -(current[0]! * 2 + current[1]! * -4 - penalty));
  });
});
