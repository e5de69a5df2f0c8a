import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  advantageAt,
  advantageScales,
  batchAdvantages,
  groupAdvantages,
  isUniform,
  lengthPenalty,
} from '../../../shared/rl/advantages.js';
import type { Normalization } from '../../../shared/rl/objective.js';
import { progressAt } from '../../../shared/rl/learning-rate.js';
import { assertClose } from './close.js';

describe('group advantages of rewards 1, 0, 0, 1', () => {
  const rewards = [1, 0, 0, 1]; // mean 1/2, population deviation 1/2

  it('the group advantages are the distances from the mean', () => {
    assert.deepEqual(groupAdvantages('mean_centred', rewards), [0.5, -0.5, -0.5, 0.5]);
  });

  it('the group advantages are divided by the deviation plus 1e-6 for mean_std', () => {
    const expected = 0.5 / (0.5 + 1e-6);
    assertClose(groupAdvantages('mean_std', rewards), [expected, -expected, -expected, expected]);
  });

  it('the group advantages are the distances from the mean of the others for leave_one_out', () => {
    // 1 - (0 + 0 + 1)/3 = 2/3 and 0 - (1 + 0 + 1)/3 = -2/3.
    const third = 2 / 3;
    assertClose(groupAdvantages('leave_one_out', rewards), [third, -third, -third, third]);
  });

  it('the group advantages are divided by the mean for maxrl', () => {
    assertClose(groupAdvantages('maxrl', rewards), [1, -1, -1, 1]);
    assertClose(groupAdvantages('maxrl', [0, 1, 0, 0]), [-1, 3, -1, -1]);
  });

  it('the group advantages of maxrl stay within the size of the group plus 1 if rewards are negative', () => {
    assertClose(groupAdvantages('maxrl', [1, -1, -1, 1]), [1, -1, -1, 1]); // the absolute values have the mean 1
    assertClose(groupAdvantages('maxrl', [0, -1]), [1, -1]);
    const penalized = Array.from({ length: 15 }, () => -0.03); // wrong answers, by --length-penalty
    for (const rest of [0.01, 0.45, 1.4e-17]) {
      const advantages = groupAdvantages('maxrl', [rest, ...penalized]);
      for (const advantage of advantages) assert(Math.abs(advantage) <= 17, String(advantage));
    }
  });

  it('the group advantages are the rewards themselves for reward, also if they are all equal', () => {
    assert.deepEqual(groupAdvantages('reward', rewards), rewards);
    assert.deepEqual(groupAdvantages('reward', [1, 1]), [1, 1]);
  });
});

describe('group advantages', () => {
  it('maxrl gives way at the same step, wherever the run was resumed', () => {
    const settings = { advantage: 'maxrl', maxrlUntil: 0.85 } as const;
    for (let resumedAt = 0; resumedAt <= 16; resumedAt++) {
      const run = { progressBefore: resumedAt / 20, stepBefore: resumedAt, maxSteps: 20 };
      const kinds = [16, 17].map((step) =>
        advantageAt(settings, progressAt({ ...run, maxSeconds: Infinity }, step, 0)),
      );
      assert.deepEqual(kinds, ['maxrl', 'mean_centred'], `resumed at step ${resumedAt}`);
    }
  });

  it('the group advantages are exactly 0 for equal rewards that no binary fraction holds', () => {
    for (const kind of ['mean_centred', 'mean_std', 'leave_one_out', 'maxrl'] as const) {
      assert.deepEqual(groupAdvantages(kind, [0.1, 0.1, 0.1]), [0, 0, 0]);
    }
  });

  it('centred advantages give a problem the gradient of its solve rate, without the groups that refill skips', () => {
    for (const solved of [0.05, 0.5, 0.9]) {
      const expected = 3 * solved * (1 - solved);
      assertClose([expectedGradient('mean_centred', solved, 4)], [expected]);
    }
  });

  it('the advantages of maxrl give a problem the gradient of the logarithm of its solve rate, the nearer the larger the group', () => {
    for (const solved of [0.05, 0.5, 0.9]) {
      const ofLogarithm = 1 - solved; // with one logit as the policy
      for (const size of [4, 12]) {
        const expected = size * (ofLogarithm - (1 - solved) ** size);
        assertClose([expectedGradient('maxrl', solved, size)], [expected]);
      }
    }
  });

  it('the group advantages cannot be computed for a group of one or a reward that is not a number', () => {
    assert.throws(() => groupAdvantages('mean_centred', [1]), /group of 1/);
    assert.throws(() => groupAdvantages('mean_centred', [1, NaN]), /rewards\[1\] is NaN/);
  });
});

/** Of a mixed group, with one logit as the policy: the score of a right answer is 1 - p and that of a wrong one -p. */
function expectedGradient(kind: 'mean_centred' | 'maxrl', solved: number, size: number): number {
  let expected = 0;
  for (let outcome = 1; outcome < 2 ** size - 1; outcome++) {
    const rewards = Array.from({ length: size }, (_, i) => (outcome >> i) & 1);
    const right = rewards.filter((reward) => reward === 1).length;
    const gradient = groupAdvantages(kind, rewards)
      .map((advantage, i) => advantage * (rewards[i]! - solved))
      .reduce((sum, term) => sum + term);
    expected += solved ** right * (1 - solved) ** (size - right) * gradient;
  }
  return expected;
}

describe('batch advantages of the groups 1, 0 and 3, 1', () => {
  const groups = [
    [1, 0],
    [3, 1],
  ]; // centred: ±1/2 and ±1

  it('the batch advantages are divided by the one deviation of all centred rewards', () => {
    const deviation = Math.sqrt((1 / 4 + 1 / 4 + 1 + 1) / 4) + 1e-6;
    const [first, second] = batchAdvantages('batch_std', groups);
    assertClose(first!, [0.5 / deviation, -0.5 / deviation]);
    assertClose(second!, [1 / deviation, -1 / deviation]);
  });

  it('the batch advantages are computed per group for the other kinds', () => {
    assert.deepEqual(batchAdvantages('mean_centred', groups), [
      [0.5, -0.5],
      [1, -1],
    ]);
  });

  it('the batch advantages are 0 where no group has variance', () => {
    assert.deepEqual(batchAdvantages('batch_std', [[0.1, 0.1]]), [[0, 0]]);
  });
});

describe('advantage scales of groups with 2 and 3, and 5 and 10 tokens, two minibatches a step', () => {
  const groups = [
    [2, 3],
    [5, 10],
  ];
  const scales = (normalization: Normalization) =>
    advantageScales(normalization, groups, { numMinibatches: 2, maxTokens: 16 }).flat();

  it('the scale for a sum over tokens leaves the advantages unchanged', () => {
    assert.deepEqual(scales('none'), [1, 1, 1, 1]);
  });

  it('the scale for a mean over tokens gives every token the same share', () => {
    assertClose(scales('token'), [1 / 40, 1 / 40, 1 / 40, 1 / 40]);
  });

  it('the scale for a mean over rollouts gives every rollout the same share', () => {
    assertClose(scales('sequence'), [1 / 16, 1 / 24, 1 / 40, 1 / 80]);
  });

  it('the scale for a mean over groups gives every group the same share, and its tokens alike', () => {
    assertClose(scales('group'), [1 / 20, 1 / 20, 1 / 60, 1 / 60]);
  });

  it('the scale by the longest answer divides every token by its length and the number of rollouts', () => {
    assertClose(scales('constant'), [1 / 128, 1 / 128, 1 / 128, 1 / 128]);
  });
});

describe('advantage scales of a group of which one answer has no token left to train on', () => {
  it('the answer has the scale 0 and does not count in the mean over rollouts', () => {
    const context = { numMinibatches: 1, maxTokens: 16 };
    const scales = (normalization: Normalization) =>
      advantageScales(normalization, [[2, 0, 3]], context).flat();
    assertClose(scales('none'), [1, 0, 1]);
    assertClose(scales('sequence'), [1 / 4, 0, 1 / 6]);
    assertClose(scales('token'), [1 / 5, 0, 1 / 5]);
  });
});

describe('a length penalty of 0.5 on answers of 4 to 12 tokens', () => {
  const penalty = { weight: 0.5, freeTokens: 4 };
  it('the length penalty grows in proportion beyond the free tokens, up to its weight', () => {
    const lengths = [1, 4, 8, 12, 20];
    const lost = lengths.map((tokens) => lengthPenalty(penalty, tokens, 12));
    assert.deepEqual(lost, [0, 0, -0.25, -0.5, -0.5]);
  });
});

describe('zero variance', () => {
  it('zero variance is equality of fractions, in lowest terms or not', () => {
    assert(isUniform(['1/10', '2/20', '10/100']));
    assert(isUniform(['0', '-0', '0/7']));
  });

  it('zero variance distinguishes rewards that are equal in floating point', () => {
    const tiny = `1/1${'0'.repeat(30)}`;
    assert(!isUniform(['1', `1${'0'.repeat(29)}1/1${'0'.repeat(30)}`]));
    assert(!isUniform(['0', tiny]));
  });

  it('zero variance compares all rewards of the group', () => {
    assert(!isUniform(['1', '1', '1', '0']));
  });

  it('zero variance refuses a reward that is not a fraction', () => {
    assert.throws(() => isUniform(['1/0']), /"1\/0" is not a fraction/);
    assert.throws(() => isUniform(['0.5']), /"0.5"/);
    assert.throws(() => isUniform([]), /empty/);
  });
});
