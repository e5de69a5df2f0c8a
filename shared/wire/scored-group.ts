import { z } from 'zod';
import { RolloutGroup } from './rollout-group.js';
import { maxGroupSize } from './ticket.js';

/** `150/7` or `84`. */
const Fraction = z
  .string()
  .max(1_024)
  .regex(/^-?\d+(\/0*[1-9]\d*)?$/);

/** The reward of one rollout and its parts. */
export const Score = z.strictObject({
  reward: z.number().describe('Reward of the completion.'),
  exactReward: Fraction.describe('The same as an exact fraction, so that rewards can be compared.'),
  hasFormat: z.boolean().describe('Whether an answer was found.'),
  isValid: z.boolean().describe('Whether the answer has the form that the task asks for.'),
  isCorrect: z.boolean().describe('Whether the answer is correct.'),
  reason: z.string().max(64).describe('Outcome, such as correct, wrong_value or no_answer.'),
  value: Fraction.optional().describe('Value of a valid answer.'),
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
