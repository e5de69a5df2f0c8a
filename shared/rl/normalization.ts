export type Normalization = 'none' | 'token' | 'sequence';

/**
 * The factor on the advantages of each rollout of a minibatch. Backend losses are sums over tokens,
 * so the weight of a token in the step's gradient is decided here.
 *
 * - `none`: 1. A long rollout weighs more, and so does a bigger batch.
 * - `token`: 1 / (tokens of the minibatch · minibatches). Each minibatch is a mean over its tokens,
 *   and the step is the mean of its minibatches (they are sent off before the others are known).
 * - `sequence`: 1 / (tokens of the rollout · rollouts of the minibatch · minibatches). Each rollout
 *   is a mean over its tokens, and the step is the mean of its rollouts.
 *
 * @param lengths [B] tokens that each rollout of the minibatch sampled, all at least 1.
 * @param numMinibatches how many of these make an optimizer step.
 * @returns [B] one factor per rollout.
 */
export function advantageScales(
  normalization: Normalization,
  lengths: readonly number[],
  numMinibatches: number,
): number[] {
  const tokens = lengths.reduce((sum, length) => sum + length, 0);
  switch (normalization) {
    case 'none':
      return lengths.map(() => 1);
    case 'token':
      return lengths.map(() => 1 / (tokens * numMinibatches));
    case 'sequence':
      return lengths.map((length) => 1 / (length * lengths.length * numMinibatches));
  }
}
