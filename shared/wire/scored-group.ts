import { z } from 'zod';
import { RolloutGroup } from './rollout-group.js';
import { maxGroupSize } from './ticket.js';

/** `150/7` or `84`, in lowest terms. */
const Fraction = z
  .string()
  .max(1_024)
  .regex(/^-?\d+(\/\d+)?$/);

/** The reward of one rollout and the parts that it was made of. */
export const Score = z.strictObject({
  reward: z.number().describe('What the completion earns.'),
  exactReward: Fraction.describe('The same as a fraction: two of these can be equal.'),
  hasFormat: z.boolean().describe('An answer could be found.'),
  isValid: z.boolean().describe('It is of the form that the task asks for.'),
  isCorrect: z.boolean().describe('And it is the right one.'),
  reason: z.string().max(64).describe('What was found, such as correct, wrong_value or no_answer.'),
  value: Fraction.optional().describe('What a valid answer comes to.'),
});
export type Score = z.infer<typeof Score>;

/** A group with its rewards, on its way from the reward service to the learner. */
export const ScoredGroup = z
  .strictObject({
    v: z.literal(1),
    group: RolloutGroup,
    scores: z.array(Score).min(1).max(maxGroupSize), // [G], in the group's order
    scorer: z.string().min(1).max(128), // which replica of the reward service
    scoredAt: z.number(), // ms since the epoch
  })
  .refine((scored) => scored.scores.length === scored.group.rollouts.length, {
    path: ['scores'],
    message: 'expected one score per rollout',
  });
export type ScoredGroup = z.output<typeof ScoredGroup>;
