import { sum } from '../base/statistics.js';
import type { Normalization } from './objective.js';

export interface NormalizationContext {
  /** How many of these minibatches make an optimizer step. */
  readonly numMinibatches: number;
  /** The longest answer that the policy may give, in tokens. */
  readonly maxTokens: number;
}

/**
 * The factor on the advantages of each rollout of a minibatch. Backend losses are sums over tokens,
 * so the weight of a token in an optimizer step's gradient is decided here. An optimizer step is the
 * mean of its minibatches, since they are sent off before the others are known.
 *
 * - `none`: 1. A long rollout weighs more, and so does a bigger batch.
 * - `token`: a minibatch is a mean over its tokens (DAPO, Yu et al. 2025, arXiv:2503.14476).
 * - `sequence`: a minibatch is a mean over its rollouts, each a mean over its tokens (GRPO, Shao et
 *   al. 2024, arXiv:2402.03300): a token of a short answer weighs more.
 * - `group`: a minibatch is a mean over its groups, each a mean over its tokens.
 * - `constant`: a minibatch is a mean over its rollouts, each a sum over its tokens divided by
 *   `maxTokens`: no length is preferred (Dr. GRPO, Liu et al. 2025, arXiv:2503.20783).
 *
 * @param groups [groups][G] tokens that each rollout of the minibatch sampled, all at least 1.
 * @returns [groups][G] one factor per rollout.
 */
export function advantageScales(
  normalization: Normalization,
  groups: readonly (readonly number[])[],
  { numMinibatches, maxTokens }: NormalizationContext,
): number[][] {
  const rollouts = groups.flat().length;
  const tokens = sum(groups.flat());
  const divisor = (length: number, group: readonly number[]): number => {
    switch (normalization) {
      case 'none':
        return 1;
      case 'token':
        return tokens * numMinibatches;
      case 'sequence':
        return length * rollouts * numMinibatches;
      case 'group':
        return sum(group) * groups.length * numMinibatches;
      case 'constant':
        return maxTokens * rollouts * numMinibatches;
    }
  };
  return groups.map((group) => group.map((length) => 1 / divisor(length, group)));
}
