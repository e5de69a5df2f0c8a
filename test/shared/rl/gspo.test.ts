import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { gspo } from '../../../shared/rl/gspo.js';
import { lossAndGradient } from '../../../shared/rl/losses.js';
import { assertClose } from './close.js';

const log2 = Math.log(2);
// A prompt token, and three sampled ones with ratios 2, 4 and 1/2: their geometric mean is 4^(1/3).
const current = [-9, -1 + log2, -2 + 2 * log2, -1 - log2];
const behavior = [0, -1, -2, -1];
const sampled = [0, 1, 1, 1];
const ratio = 4 ** (1 / 3);
const wide = { clip_low_threshold: 0, clip_high_threshold: 10 };

function loss(advantages: number[], config: Record<string, number> = {}, mask = sampled) {
  return gspo(current, { logprobs: behavior, advantages, sequence_ratio_mask: mask }, config);
}

describe('gspo', () => {
  it('gspo gives each token the ratio of its sequence and the gradient of its own logprob', () => {
    const { loss: value, gradient } = loss([0, 1, 1, -2], wide);
    assertClose([value], [-(ratio + ratio - 2 * ratio)]);
    assertClose(gradient, [0, -ratio, -ratio, 2 * ratio]);
  });

  it('gspo keeps or drops a whole sequence: a good one above the bound has no gradient', () => {
    const { loss: value, gradient } = loss([0, 1, 2, 1], { ...wide, clip_high_threshold: 1.5 });
    assertClose([value], [-1.5 * 4]);
    assertClose(gradient, [0, 0, 0, 0]);
  });

  it('gspo still pushes down a bad sequence that became more probable', () => {
    const { gradient } = loss([0, -1, -1, -1], { ...wide, clip_high_threshold: 1.5 });
    assertClose(gradient, [0, ratio, ratio, ratio]);
  });

  it('gspo clips by default at the bounds of the paper', () => {
    assertClose([loss([0, 1, 0, 0]).loss], [-1.0004]);
    const worse = gspo([-2], { logprobs: [-1], advantages: [-1], sequence_ratio_mask: [1] }, {});
    assertClose([worse.loss], [0.9997]);
  });

  it('gspo takes the ratio over the marked tokens only', () => {
    assertClose([loss([0, 1, 0, 0], wide, [0, 0, 1, 0]).loss], [-4]);
  });

  it('gspo refuses a sequence without a marked token', () => {
    assert.throws(() => loss([0, 1, 1, 1], wide, [0, 0, 0, 0]), /marks no token/);
  });

  it('gspo of sequences of one token is ppo', () => {
    const logprob = fc.double({ min: -5, max: 0, noNaN: true });
    fc.assert(
      fc.property(
        logprob,
        logprob,
        fc.double({ min: -3, max: 3, noNaN: true }),
        (now, before, advantage) => {
          const inputs = { logprobs: [before], advantages: [advantage], sequence_ratio_mask: [1] };
          const config = { clip_low_threshold: 0.8, clip_high_threshold: 1.2 };
          const ours = gspo([now], inputs, config);
          const theirs = lossAndGradient('ppo', [now], inputs, config);
          assertClose([ours.loss, ...ours.gradient], [theirs.loss, ...theirs.gradient]);
        },
      ),
    );
  });
});
