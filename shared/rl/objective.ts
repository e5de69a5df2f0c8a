import { z } from 'zod';

/** Off-policy corrections besides the importance ratio of the loss itself. */
export const Correction = z.strictObject({
  weights: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('none') }),
    z.strictObject({ kind: z.enum(['token', 'sequence']), cap: z.number().positive() }),
  ]),
  mask: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('none') }),
    z.strictObject({
      kind: z.enum(['icepop', 'sequence', 'geometric']),
      low: z.number().nonnegative(), // bounds of the importance ratio itself
      high: z.number().positive(),
    }),
  ]),
});
export type Correction = z.infer<typeof Correction>;

/** How a rollout's reward is compared with others to give its advantage. */
export const AdvantageKind = z.enum([
  'mean_centred',
  'mean_std',
  'leave_one_out',
  'maxrl',
  'batch_std',
  'reward',
]);
export type AdvantageKind = z.infer<typeof AdvantageKind>;

export const Normalization = z.enum(['none', 'token', 'sequence', 'group', 'constant']);
export type Normalization = z.infer<typeof Normalization>;

/** Terms added to rewards and advantages; 0 disables each. */
export const ExtraTerms = z.strictObject({
  lengthPenalty: z.strictObject({
    weight: z.number().nonnegative(), // penalty of the longest answer
    freeTokens: z.int().nonnegative(), // answers up to this length have no penalty
  }),
  klPenalty: z.number().nonnegative(), // coefficient of KL to the base model
  entropyBonus: z.strictObject({
    coefficient: z.number().nonnegative(),
    target: z.number().positive().optional(), // nats per token, above which there is no bonus
  }),
});
export type ExtraTerms = z.infer<typeof ExtraTerms>;

/** Treatment of a group whose rewards are all equal. */
export const ZeroVariance = z.enum([
  'refill', // skipped, and replaced by exactly one other
  'train', // trained on: it takes a place in the batch, and only extra terms learn from it
]);
export type ZeroVariance = z.infer<typeof ZeroVariance>;
