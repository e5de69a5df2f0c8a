import { z } from 'zod';

/** What is done about stale data besides the ratio of the loss itself. */
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

/** How a rollout is compared with others, and what a token's advantage is weighted by. */
export const AdvantageKind = z.enum(['mean_centred', 'mean_std', 'leave_one_out', 'batch_std']);
export type AdvantageKind = z.infer<typeof AdvantageKind>;

export const Normalization = z.enum(['none', 'token', 'sequence', 'group', 'constant']);
export type Normalization = z.infer<typeof Normalization>;

/** What is added to rewards and advantages; 0 in each of them: nothing. */
export const ExtraTerms = z.strictObject({
  lengthPenalty: z.strictObject({
    weight: z.number().nonnegative(), // what the longest answer loses
    freeTokens: z.int().nonnegative(), // answers up to here lose nothing
  }),
  klPenalty: z.number().nonnegative(), // coefficient of KL to the base model
  entropyBonus: z.strictObject({
    coefficient: z.number().nonnegative(),
    target: z.number().positive().optional(), // nats a token, above which there is no bonus
  }),
});
export type ExtraTerms = z.infer<typeof ExtraTerms>;

/** What becomes of a group whose rewards are all equal. */
export const ZeroVariance = z.enum([
  'refill', // skipped, and replaced by exactly one other
  'train', // trained on: it takes a place in the batch, and only extra terms learn from it
]);
export type ZeroVariance = z.infer<typeof ZeroVariance>;
