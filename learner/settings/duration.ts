import { z } from 'zod';
import { real, whole } from '../../shared/service/config-fields.js';

/** How long to train, and how much of it a crash may cost. */
export const Duration = z.object({
  maxSteps: whole
    .positive()
    .optional()
    .describe('end after N steps, those before a resume included; a step trains one batch.'),
  maxMinutes: real
    .positive()
    .optional()
    .describe('end after N minutes of training; evaluations do not count, nor earlier processes.'),
  checkpointEverySteps: whole
    .positive()
    .default(10)
    .describe('steps between checkpoints: what a crash of backend or learner can cost.'),
  keepEverySteps: whole
    .min(0)
    .default(0)
    .describe(
      'keep the checkpoint of every N-th step for good, besides the two newest and the best; 0: only those.',
    ),
});
export type Duration = z.infer<typeof Duration>;
