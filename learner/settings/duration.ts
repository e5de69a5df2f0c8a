import { z } from 'zod';
import { number, int } from '../../shared/service/config-fields.js';

/** How long to train, and how much of it a crash may cost. */
export const Duration = z.object({
  maxSteps: int
    .positive()
    .optional()
    .describe('end after N steps, those before a resume included; a step trains one batch.'),
  maxMinutes: number
    .positive()
    .optional()
    .describe('end after N minutes of training; evaluations do not count, nor earlier processes.'),
  checkpointEverySteps: int
    .positive()
    .default(10)
    .describe('steps between checkpoints: what a crash of backend or learner can cost.'),
  keepEverySteps: int
    .min(0)
    .default(0)
    .describe(
      'keep the checkpoint of every N-th step for good, besides the two newest and the best; 0: only those.',
    ),
});
export type Duration = z.infer<typeof Duration>;
