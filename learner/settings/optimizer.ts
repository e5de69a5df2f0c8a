import { z } from 'zod';
import { number, int } from '../../shared/service/config-fields.js';
import { Schedule } from '../../shared/rl/learning-rate.js';
import type { Duration } from './duration.js';
import type { Complain } from './complain.js';

/** What is trained, and how its weights move. */
export const Optimizer = z.object({
  loraRank: int.positive().default(32).describe('rank of the adapter.'),
  learningRate: number.positive().default(1e-3).describe('of AdamW; of a schedule, its peak.'),
  schedule: Schedule.shape.kind
    .default('constant')
    .describe(
      'how the learning rate goes from its peak to the end: by --max-steps, else by --max-minutes; ' +
        'npm start takes cosine.',
    ),
  warmupSteps: int
    .min(0)
    .default(0)
    .describe('steps in which the learning rate rises to its peak, in equal parts.'),
  finalRateShare: number
    .min(0)
    .max(1)
    .optional()
    .describe('what is left of the peak at the end of --schedule linear or cosine; 0.1.'),
  beta1: number.min(0).lt(1).default(0.9).describe('of AdamW.'),
  beta2: number.min(0).lt(1).default(0.95).describe('of AdamW.'),
  eps: number.positive().default(1e-12).describe('of AdamW.'),
  weightDecay: number.min(0).default(0).describe('of AdamW, decoupled.'),
  gradClipNorm: number.min(0).default(0).describe('largest global gradient norm; 0: no clipping.'),
});
export type Optimizer = z.infer<typeof Optimizer>;

export function checkOptimizer(
  settings: Optimizer & Duration,
  complain: Complain<Optimizer>,
): void {
  const { schedule, finalRateShare, maxSteps, maxMinutes } = settings;
  if (schedule === 'constant' && finalRateShare !== undefined) {
    complain('finalRateShare', '--schedule constant ends where it begins; remove it');
  }
  if (schedule !== 'constant' && maxSteps === undefined && maxMinutes === undefined) {
    complain('schedule', 'it needs to know the end: add --max-steps or --max-minutes');
  }
}

export function scheduleOf({ schedule, warmupSteps, finalRateShare }: Optimizer): Schedule {
  const finalShare = schedule === 'constant' ? 1 : (finalRateShare ?? 0.1);
  return { kind: schedule, warmupSteps, finalShare };
}
