import { z } from 'zod';
import { number, int } from '../../shared/service/config-fields.js';
import {
  AdvantageKind,
  Normalization,
  ZeroVariance,
  type ExtraTerms,
} from '../../shared/rl/objective.js';
import type { Batches } from './batches.js';
import type { Complain } from './complain.js';

/** What a rollout is compared with, and what else a token earns or loses. */
export const Advantages = z.object({
  advantage: AdvantageKind.default('mean_centred').describe(
    'how a rollout is compared with its group; batch_std divides by the deviation over the batch, which ' +
      'must be complete before it is sent.',
  ),
  normalization: Normalization.default('none').describe(
    'how the sum over tokens is weighted: none, or a mean over tokens, over rollouts, over groups, or over ' +
      'rollouts by the longest answer (constant).',
  ),
  zeroVariance: ZeroVariance.default('refill').describe(
    'groups whose rewards are all equal: skipped and replaced by one more, or trained on all the same.',
  ),
  lengthPenalty: number
    .min(0)
    .default(0)
    .describe('what the longest answer loses of its reward when it is compared.'),
  lengthFree: int.min(0).default(0).describe('answers up to N tokens lose nothing for it.'),
  klPenalty: number
    .min(0)
    .default(0)
    .describe('weight of KL to the base model in the advantages; costs a pass of the base.'),
  entropyBonus: number
    .min(0)
    .default(0)
    .describe('weight of the entropy of the next token in the advantages.'),
  entropyTarget: number
    .positive()
    .optional()
    .describe(
      'nats a token: the bonus fades as the entropy comes up to it; else it is always there.',
    ),
});
export type Advantages = z.infer<typeof Advantages>;

export function checkAdvantages(
  settings: Advantages & Pick<Batches, 'maxTokens'>,
  complain: Complain<Advantages>,
): void {
  const { lengthPenalty, lengthFree, entropyBonus, entropyTarget, maxTokens } = settings;
  if (lengthPenalty === 0 && lengthFree > 0) {
    complain('lengthFree', 'there is no --length-penalty; remove it');
  }
  if (lengthPenalty > 0 && lengthFree >= maxTokens) {
    complain('lengthFree', `it must be below --max-tokens, which is ${maxTokens}`);
  }
  if (entropyBonus === 0 && entropyTarget !== undefined) {
    complain('entropyTarget', 'there is no --entropy-bonus; remove it');
  }
}

export function extraTerms(settings: Advantages): ExtraTerms {
  const { lengthPenalty, lengthFree, klPenalty, entropyBonus, entropyTarget } = settings;
  return {
    lengthPenalty: { weight: lengthPenalty, freeTokens: lengthFree },
    klPenalty,
    entropyBonus: {
      coefficient: entropyBonus,
      ...(entropyTarget !== undefined && { target: entropyTarget }),
    },
  };
}
