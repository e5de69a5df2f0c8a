import { z } from 'zod';
import { int } from '../../shared/service/config-fields.js';
import type { Complain } from './complain.js';
import type { Task } from './task.js';

/** What is measured on held-out problems. */
export const Evaluation = z.object({
  evalProblems: int
    .min(0)
    .default(256)
    .describe('held-out problems to measure the policy on; 0: no evaluation.'),
  evalSamples: int
    .positive()
    .default(4)
    .describe('answers to each of them at the training temperature; one more is greedy.'),
  evalEveryVersions: int
    .min(0)
    .default(20)
    .describe(
      'the version of every N-th step is measured while training goes on; 0: only before and after.',
    ),
});
export type Evaluation = z.infer<typeof Evaluation>;

export function checkEvaluation(
  { evalProblems, testSize }: Evaluation & Task,
  complain: Complain<Evaluation>,
): void {
  if (evalProblems > testSize) {
    complain('evalProblems', `only --test-size ${testSize} problems are held out`);
  }
}
