import { z } from 'zod';
import { HubSpec } from '../data/data.js';
import { TableSpec } from '../data/table.js';
import { namesOnly, PromptTemplate } from '../prompt-template.js';

/** Problems generated from the seed, the same in every process. */
export const GeneratorSpec = z.strictObject({
  kind: z.literal('generator'),
  seed: z.int().nonnegative(),
  numbers: z.array(z.int().min(2).max(6)).min(1), // allowed numbers of numbers per problem
  minNumber: z.int().positive().optional(), // 1
  maxNumber: z.int().positive(),
  minTarget: z.int().positive().optional(), // 1
  maxTarget: z.int().positive(),
  trainSize: z.int().positive(),
  testSize: z.int().positive(),
  /** Training problems of a kind that the model has learned before and should not forget. */
  rehearsal: z
    .strictObject({
      share: z.number().positive().lt(1), // of the training problems
      numbers: z.array(z.int().min(2).max(6)).min(1),
      maxNumber: z.int().positive(),
      maxTarget: z.int().positive(),
    })
    .optional(),
});
export type GeneratorSpec = z.infer<typeof GeneratorSpec>;

export const RewardSpec = z.strictObject({
  formatScore: z
    .number()
    .min(0)
    .max(1)
    .describe('Reward of an answer in the right form that is not correct.'),
  shaping: z
    .enum(['none', 'constant', 'continuous', 'random'])
    .describe(
      'none: 0 or 1 only; continuous: more for a value near the target; random: 0 or 1 by chance.',
    ),
  numbersToUse: z
    .enum(['all', 'some'])
    .default('all')
    .describe('some: an answer may leave numbers out, as in the classical game.'),
  targetTail: z
    .enum(['by_style', 'accept', 'refuse'])
    .default('by_style')
    .describe('Whether an answer may end in "= 64", its target.'),
});
export type RewardSpec = z.infer<typeof RewardSpec>;

/** The parts of a problem that a template may show: `3, 7, 21`, `3 7 21`, and `64`. */
const promptParts = ['numbers', 'numbers_spaced', 'target'] as const;

export const CountdownPrompt = PromptTemplate.safeExtend({
  /** Whether the answer may end in `= 64`, the target, as models that show their work write it. */
  allowsTargetTail: z.boolean().default(false),
}).check(namesOnly(promptParts));
export type CountdownPrompt = z.infer<typeof CountdownPrompt>;

/** The configuration of Countdown in a run. */
export const CountdownSpec = z.strictObject({
  name: z.literal('countdown'),
  dataset: z.discriminatedUnion('kind', [GeneratorSpec, TableSpec, HubSpec]),
  prompt: CountdownPrompt,
  reward: RewardSpec,
});
export type CountdownSpec = z.infer<typeof CountdownSpec>;
