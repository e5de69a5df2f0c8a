import { z } from 'zod';
import { LossName } from '../../shared/wire/run-config.js';
import type { Batches } from './batches.js';
import { real, type Complain } from './fields.js';

/** What a step maximises: the loss, its corrections, and what a rollout is compared with. */
export const Objective = z.object({
  loss: LossName.default('cispo').describe("the backend's loss function."),
  clipLow: real
    .min(0)
    .optional()
    .describe('lowest importance ratio that counts; cispo 0, ppo 0.8.'),
  clipHigh: real.positive().optional().describe('and the highest; cispo 4, ppo 1.2.'),
  droBeta: real.positive().optional().describe('weight of the quadratic term of dro; 0.01.'),
  advantage: z
    .enum(['mean_centred', 'mean_std', 'leave_one_out'])
    .default('mean_centred')
    .describe('how a rollout is compared with its group.'),
  normalization: z
    .enum(['none', 'token', 'sequence'])
    .default('none')
    .describe('how the sum over tokens is weighted.'),
});
export type Objective = z.infer<typeof Objective>;

export function checkObjective(
  settings: Objective & Pick<Batches, 'maxStepsOffPolicy'>,
  complain: Complain<Objective>,
): void {
  const { loss } = settings;
  const clips = loss === 'cispo' || loss === 'ppo';
  for (const key of ['clipLow', 'clipHigh'] as const) {
    if (!clips && settings[key] !== undefined)
      complain(key, `--loss ${loss} clips nothing; remove it`);
  }
  const { clip_low_threshold: low, clip_high_threshold: high } = lossConfig(settings);
  if (low !== undefined && high !== undefined && low >= high) {
    complain('clipHigh', `it must be above --clip-low, which is ${low}`);
  }
  if (loss !== 'dro' && settings.droBeta !== undefined) {
    complain('droBeta', `--loss ${loss} has no beta; remove it`);
  }
  if (loss === 'cross_entropy' && settings.maxStepsOffPolicy > 0) {
    complain(
      'loss',
      'cross_entropy corrects nothing, so it is on-policy only: add --max-steps-off-policy 0 or choose cispo',
    );
  }
}

type LossSettings = Pick<Objective, 'loss' | 'clipLow' | 'clipHigh' | 'droBeta'>;

/** Always complete: servers have defaults of their own, and they differ. */
export function lossConfig({
  loss,
  clipLow,
  clipHigh,
  droBeta,
}: LossSettings): Record<string, number> {
  switch (loss) {
    case 'cispo':
      return { clip_low_threshold: clipLow ?? 0, clip_high_threshold: clipHigh ?? 4 };
    case 'ppo':
      return { clip_low_threshold: clipLow ?? 0.8, clip_high_threshold: clipHigh ?? 1.2 };
    case 'dro':
      return { beta: droBeta ?? 0.01 };
    case 'importance_sampling':
    case 'cross_entropy':
      return {};
  }
}
