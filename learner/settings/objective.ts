import { z } from 'zod';
import { real } from '../../shared/service/config-fields.js';
import type { Correction } from '../../shared/rl/objective.js';
import { LossName } from '../../shared/rl/losses.js';
import type { Advantages } from './advantages.js';
import type { Batches } from './batches.js';
import type { Complain } from './complain.js';

/** What a step maximises, and how it makes up for data of older policies. */
export const Objective = z.object({
  loss: LossName.default('cispo').describe("the backend's loss function."),
  clipLow: real
    .min(0)
    .optional()
    .describe('lowest importance ratio that counts; cispo 0, ppo 0.8.'),
  clipHigh: real.positive().optional().describe('and the highest; cispo 4, ppo 1.2.'),
  droBeta: real.positive().optional().describe('weight of the quadratic term of dro; 0.01.'),
  correction: z
    .enum(['in_loss', 'token_weights', 'sequence_weights'])
    .default('in_loss')
    .describe(
      "in_loss: the loss's own ratio to the policy that sampled. Else truncated importance weights, and the " +
        "loss's ratio is to the policy at the start of the step: with ppo, decoupled PPO. Costs a forward pass, " +
        'and with --num-substeps the batch must be complete before it is sent.',
    ),
  weightCap: real.positive().optional().describe('where --correction truncates its weights; 2.'),
  mask: z
    .enum(['none', 'icepop', 'sequence', 'geometric'])
    .default('none')
    .describe(
      'leaves out what is too far off-policy: tokens by their own ratio (icepop), or rollouts by the product ' +
        '(sequence) or the geometric mean of their ratios. Costs a forward pass.',
    ),
  maskLow: real
    .min(0)
    .optional()
    .describe('lowest ratio that --mask keeps; icepop and sequence 0.5, geometric 0.9.'),
  maskHigh: real
    .positive()
    .optional()
    .describe('and the highest; icepop and sequence 5, geometric 1.1.'),
  allowUncorrected: z
    .boolean()
    .default(false)
    .describe('insist on training on stale data without any correction.'),
});
export type Objective = z.infer<typeof Objective>;

export function checkObjective(
  settings: Objective &
    Pick<Batches, 'maxStepsOffPolicy' | 'numSubsteps'> &
    Pick<Advantages, 'advantage'>,
  complain: Complain<Objective & Pick<Batches, 'numSubsteps'>>,
): void {
  checkLoss(settings, complain);
  checkCorrection(settings, complain);
  const { loss, mask, advantage, numSubsteps, maxStepsOffPolicy, allowUncorrected } = settings;
  if (loss === 'dro' && numSubsteps > 1 && (mask !== 'none' || advantage === 'batch_std')) {
    complain(
      'numSubsteps',
      'dro with a --mask or --advantage batch_std takes the prompt from before the first of them, ' +
        'and would pull the later ones back there: choose 1, or leave the others out',
    );
  }
  if (maxStepsOffPolicy > 0 && !isCorrected(settings) && !allowUncorrected) {
    complain(
      'loss',
      `${loss} corrects nothing, and data may be ${maxStepsOffPolicy} versions old: choose cispo, add ` +
        '--correction token_weights or --max-steps-off-policy 0, or insist with --allow-uncorrected',
    );
  }
}

/** Whether anything makes up for data that another policy sampled. */
function isCorrected({ loss, correction, mask }: Objective): boolean {
  return loss !== 'cross_entropy' || correction !== 'in_loss' || mask !== 'none';
}

function checkLoss(settings: Objective, complain: Complain<Objective>): void {
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
}

function checkCorrection(settings: Objective, complain: Complain<Objective>): void {
  const { loss, correction, mask } = settings;
  if (correction !== 'in_loss' && loss === 'dro') {
    complain('correction', 'dro needs the distance to the policy that sampled; choose in_loss');
  }
  if (correction === 'in_loss' && settings.weightCap !== undefined) {
    complain('weightCap', '--correction in_loss has no weights; remove it');
  }
  for (const key of ['maskLow', 'maskHigh'] as const) {
    if (mask === 'none' && settings[key] !== undefined)
      complain(key, 'there is no --mask; remove it');
  }
  const bounds = correctionOf(settings).mask;
  if (bounds.kind !== 'none' && bounds.low >= bounds.high) {
    complain('maskHigh', `it must be above --mask-low, which is ${bounds.low}`);
  }
}

/** Always complete: servers have defaults of their own, and they differ. */
export function lossConfig({
  loss,
  clipLow,
  clipHigh,
  droBeta,
}: Pick<Objective, 'loss' | 'clipLow' | 'clipHigh' | 'droBeta'>): Record<string, number> {
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

export function correctionOf({
  correction,
  weightCap = 2,
  mask,
  maskLow,
  maskHigh,
}: Objective): Correction {
  const kind = correction === 'token_weights' ? 'token' : 'sequence';
  return {
    weights: correction === 'in_loss' ? { kind: 'none' } : { kind, cap: weightCap },
    mask:
      mask === 'none'
        ? { kind: mask }
        : {
            kind: mask,
            low: maskLow ?? maskBounds[mask].low,
            high: maskHigh ?? maskBounds[mask].high,
          },
  };
}

/** IcePop's own bounds. A geometric mean strays less, the less the longer the answers are. */
const maskBounds = {
  icepop: { low: 0.5, high: 5 },
  sequence: { low: 0.5, high: 5 },
  geometric: { low: 0.9, high: 1.1 },
};
