import { z } from 'zod';
import { number, int } from '../../shared/service/config-fields.js';
import type { DivergenceLimits } from '../../shared/rl/divergence.js';

/** When to give up a run that has diverged; what is good is kept. */
export const Stops = z.object({
  stopKl: number
    .min(0)
    .default(1)
    .describe('give up when kl_sample_train_v2 stays above this, in nats a token; 0: never.'),
  stopRewardShare: number
    .min(0)
    .lt(1)
    .default(0.3)
    .describe('give up when the reward stays below this share of its best; 0: never.'),
  stopPatience: int
    .positive()
    .default(10)
    .describe('steps in a row that it must stay so; rewards are averaged over as many.'),
  stopZeroVariance: int
    .min(0)
    .default(1_000)
    .describe('give up when so many groups in a row are skipped for no variance; 0: never.'),
});
export type Stops = z.infer<typeof Stops>;

export function divergenceLimits(settings: Stops): DivergenceLimits {
  const { stopKl, stopRewardShare: minRewardShare, stopPatience: patience } = settings;
  return { maxKl: stopKl === 0 ? Infinity : stopKl, minRewardShare, patience };
}
