import { advantageScales, batchAdvantages, lengthPenalty } from '../../shared/rl/advantages.js';
import {
  entropyCoefficient,
  entropyTerms,
  klTerms,
  tokenMean,
} from '../../shared/rl/token-terms.js';
import { sum } from '../../shared/base/statistics.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';

export type AdvantageSettings = Pick<
  RunConfig,
  'advantage' | 'normalization' | 'extraTerms' | 'numMinibatches' | 'sampling'
>;

/** The advantages of minibatches, and the terms they contain. */
export interface TokenAdvantages {
  readonly advantages: readonly Float64Array[]; // [B][T], B over all minibatches, normalization included
  readonly klToBase: number | undefined; // KL(behavior ‖ base), nats per token
  readonly entropyCoefficient: number;
}

/**
 * The advantage of every token: its rollout's advantage within the group, minus the penalty for KL to
 * the base model, plus the entropy bonus, all times the weight that normalization gives to the rollout
 * in its minibatch. A token that is too old to train on has advantage 0. The reward of its rollout is still compared
 * with the others, but normalization counts only the tokens that are trained on.
 *
 * @param minibatches the groups of each; `batch_std` and the means that terms are centred on are taken
 *   over all of them, so `batch_std` needs the whole batch.
 * @param base [B][T] logprobs of the base model, rollouts in the order of the groups; needed if and
 *   only if there is a KL penalty.
 * @param fresh [B] of each rollout 1 for the tokens that are trained on; undefined: all of them.
 */
export function tokenAdvantages(
  config: AdvantageSettings,
  minibatches: readonly (readonly ScoredGroup[])[],
  base: readonly ArrayLike<number>[] | undefined,
  fresh: readonly (Uint8Array | undefined)[] = [],
): TokenAdvantages {
  const { advantage, normalization, extraTerms, numMinibatches, sampling } = config;
  const { maxTokens } = sampling;
  const groups = minibatches.flat();
  const behavior = groups.flatMap(({ group }) =>
    group.rollouts.map(({ behaviorLogprobs }) => behaviorLogprobs),
  );
  const rewards = groups.map(({ group, scores }) =>
    scores.map(
      ({ reward }, i) =>
        reward + lengthPenalty(extraTerms.lengthPenalty, lengthOf(group.rollouts[i]!), maxTokens),
    ),
  );
  const ofRollouts = batchAdvantages(advantage, rewards).flat();
  let rollout = 0;
  const scales = minibatches.flatMap((groupsOfOne) => {
    const lengths = groupsOfOne.map(({ group }) =>
      group.rollouts.map((one) => {
        const own = fresh[rollout++];
        return own === undefined ? lengthOf(one) : sum([...own]);
      }),
    );
    return advantageScales(normalization, lengths, { numMinibatches, maxTokens }).flat();
  });

  const { coefficient, target } = extraTerms.entropyBonus;
  const bonus = entropyCoefficient(coefficient, target, -tokenMean(behavior));
  const terms = [
    ...(bonus === 0 ? [] : [entropyTerms(bonus, behavior)]),
    ...(base === undefined ? [] : [klTerms(extraTerms.klPenalty, behavior, base)]),
  ];
  return {
    advantages: behavior.map((logprobs, i) =>
      Float64Array.from(logprobs, (_, t) => {
        if (fresh[i]?.[t] === 0) return 0;
        const extra = terms.reduce((total, term) => total + term[i]![t]!, 0);
        return (ofRollouts[i]! + extra) * scales[i]!;
      }),
    ),
    klToBase: base && tokenMean(behavior) - tokenMean(base),
    entropyCoefficient: bonus,
  };
}

function lengthOf({ tokens }: { readonly tokens: Int32Array }): number {
  return tokens.length;
}
