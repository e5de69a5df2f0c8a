import { z } from 'zod';
import { RolloutGroup } from './rollout-group.js';

/** `150/7` or `84`, in lowest terms. */
const Fraction = z
  .string()
  .max(1_024)
  .regex(/^-?\d+(\/\d+)?$/);

/** The reward of one rollout and the parts that it was made of. */
export const Score = z.strictObject({
  reward: z.number(),
  exactReward: Fraction, // the same exactly: equality means something
  hasFormat: z.boolean(), // an answer could be found
  isValid: z.boolean(), // it is an expression that uses the problem's numbers as it must
  isCorrect: z.boolean(), // and its value is exactly the target
  reason: z.string().max(64), // `correct`, `wrong_value`, `no_answer`, …
  value: Fraction.optional(), // what a valid answer comes to
});
export type Score = z.infer<typeof Score>;

/** A group with its rewards, on its way from the reward service to the learner. */
export const ScoredGroup = z
  .strictObject({
    v: z.literal(1),
    group: RolloutGroup,
    scores: z.array(Score).min(1), // [G], in the group's order
    scorer: z.string().min(1).max(128), // which replica of the reward service
    scoredAt: z.number(), // ms since the epoch
  })
  .refine((scored) => scored.scores.length === scored.group.rollouts.length, {
    path: ['scores'],
    message: 'expected one score per rollout',
  });
export type ScoredGroup = z.output<typeof ScoredGroup>;
