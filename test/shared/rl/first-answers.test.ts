import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { groupAdvantages } from '../../../shared/rl/advantages.js';
import { assertClose } from './close.js';
import { continuationWeight, firstAgree } from '../../../shared/rl/first-answers.js';

const rewardsOf = (bits: number, size: number): number[] =>
  Array.from({ length: size }, (_, i) => (bits >> i) & 1);

describe('a group that may end after its first answers', () => {
  it('first answers agree if they all have the same exact reward, however it is written', () => {
    assert(firstAgree(['1/10', '2/20', '1'], 2));
    assert(!firstAgree(['1/10', '1', '1/10'], 2));
    assert(!firstAgree(['1', '1', '1/10'], 3));
    assert(!firstAgree(['1', '1'], 0), 'it is sampled whole');
  });

  it('the weight of a group is one over the share of the orders in which its first answers differ', () => {
    // One success of 4 and k = 2: of 6 pairs 3 agree. Two of each: 2 of 6.
    const weights: [rewards: string[], first: number, weight: number][] = [
      [['1', '0', '0', '0'], 2, 2],
      [['1', '0', '0', '1'], 2, 1.5],
      [['1', '1/2', '0'], 2, 1], // three rewards never agree
      [['1', '0'], 0, 1],
      [['1', ...Array<string>(15).fill('0')], 4, 4],
    ];
    for (const [rewards, first, weight] of weights) {
      assertClose([continuationWeight(rewards, first)], [weight]);
    }
    assert.throws(() => continuationWeight(['1', '1'], 2), RangeError);
  });

  /**
   * The mean of what a group adds to the gradient of one parameter θ, by enumeration of all answers: success has the
   * probability p = σ(θ), so the gradient of the log-probability is 1 - p for a success and -p otherwise.
   */
  function meanGradient(p: number, size: number, first: number, isWeighted: boolean): number {
    let mean = 0;
    for (let bits = 0; bits < 2 ** size; bits++) {
      const rewards = rewardsOf(bits, size);
      const exact = rewards.map(String);
      const successes = rewards.filter((reward) => reward === 1).length;
      const isUniform = successes === 0 || successes === size;
      if (isUniform || firstAgree(exact, first)) continue;
      const weight = isWeighted ? continuationWeight(exact, first) : 1;
      const probability = p ** successes * (1 - p) ** (size - successes);
      const pull = groupAdvantages('mean_centred', rewards).reduce(
        (sum, advantage, i) => sum + advantage * (rewards[i] === 1 ? 1 - p : -p),
        0,
      );
      mean += probability * weight * pull;
    }
    return mean;
  }

  it('weighted groups have the mean gradient of groups that are sampled whole, whatever the solve rate', () => {
    for (const p of [0.02, 0.2, 0.5, 0.9]) {
      const whole = meanGradient(p, 8, 0, true);
      assert(
        Math.abs(whole - 7 * p * (1 - p)) < 1e-12,
        'the gradient of the solve rate, G - 1 times',
      );
      for (const first of [2, 3, 4, 7]) {
        const stopped = meanGradient(p, 8, first, true);
        assert(
          Math.abs(stopped - whole) < 1e-12,
          `p ${p}, first ${first}: ${stopped}, not ${whole}`,
        );
      }
    }
  });

  it('without weights, hard problems would count less than others', () => {
    const share = (p: number) => meanGradient(p, 8, 4, false) / meanGradient(p, 8, 0, false);
    assert(share(0.02) < 0.6 && share(0.5) > 0.9, `${share(0.02)} and ${share(0.5)}`);
  });
});
