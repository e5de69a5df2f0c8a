import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { groupAdvantages } from '../../../shared/rl/advantages.js';
import { advantageScales } from '../../../shared/rl/normalization.js';
import { isUniform } from '../../../shared/rl/zero-variance.js';
import { assertClose } from './close.js';

describe('group advantages of rewards 1, 0, 0, 1', () => {
  const rewards = [1, 0, 0, 1]; // mean 1/2, population deviation 1/2

  it('are the distances from the mean', () => {
    assert.deepEqual(groupAdvantages('mean_centred', rewards), [0.5, -0.5, -0.5, 0.5]);
  });

  it('are divided by the deviation plus 1e-6, if asked for', () => {
    const expected = 0.5 / (0.5 + 1e-6);
    assertClose(groupAdvantages('mean_std', rewards), [expected, -expected, -expected, expected]);
  });

  it('are the distances from the mean of the others, if asked for', () => {
    // 1 - (0 + 0 + 1)/3 = 2/3 and 0 - (1 + 0 + 1)/3 = -2/3.
    const third = 2 / 3;
    assertClose(groupAdvantages('leave_one_out', rewards), [third, -third, -third, third]);
  });
});

describe('group advantages', () => {
  it('are exactly 0 for equal rewards that no binary fraction holds', () => {
    for (const kind of ['mean_centred', 'mean_std', 'leave_one_out'] as const) {
      assert.deepEqual(groupAdvantages(kind, [0.1, 0.1, 0.1]), [0, 0, 0]);
    }
  });

  it('refuse a group of one, and a reward that is no number', () => {
    assert.throws(() => groupAdvantages('mean_centred', [1]), /group of 1/);
    assert.throws(() => groupAdvantages('mean_centred', [1, NaN]), /rewards\[1\] is NaN/);
  });
});

describe('advantage scales of rollouts with 2, 3 and 5 tokens, two minibatches a step', () => {
  const lengths = [2, 3, 5];

  it('leave the sum over tokens alone', () => {
    assert.deepEqual(advantageScales('none', lengths, 2), [1, 1, 1]);
  });

  it('give every token the same share', () => {
    assertClose(advantageScales('token', lengths, 2), [1 / 20, 1 / 20, 1 / 20]);
  });

  it('give every rollout the same share', () => {
    assertClose(advantageScales('sequence', lengths, 2), [1 / 12, 1 / 18, 1 / 30]);
  });
});

describe('zero variance', () => {
  it('is equality of fractions, in lowest terms or not', () => {
    assert(isUniform(['1/10', '2/20', '10/100']));
    assert(isUniform(['0', '-0', '0/7']));
  });

  it('tells rewards apart that are the same in floating point', () => {
    const tiny = `1/1${'0'.repeat(30)}`;
    assert(!isUniform(['1', `1${'0'.repeat(29)}1/1${'0'.repeat(30)}`]));
    assert(!isUniform(['0', tiny]));
  });

  it('is judged on the whole group', () => {
    assert(!isUniform(['1', '1', '1', '0']));
  });

  it('refuses what is no fraction', () => {
    assert.throws(() => isUniform(['1/0']), /"1\/0" is not a fraction/);
    assert.throws(() => isUniform(['0.5']), /"0.5"/);
    assert.throws(() => isUniform([]), /empty/);
  });
});
