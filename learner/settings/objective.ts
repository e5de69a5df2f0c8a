import { z } from 'zod';
import type { Correction, ExtraTerms } from '../../shared/rl/objective.js';
import type { RatioBounds } from '../../shared/rl/off-policy.js';
import {
  losses,
  LossName,
  lossSettings,
  ratioBounds,
  type LossSetting,
} from '../../shared/rl/losses.js';
import { advantages, offPolicyFields, settingsOf } from '../../shared/run/hyperparameters.js';
import { kebab } from '../../shared/service/config.js';
import { type AddIssue, int, number } from '../../shared/service/config-fields.js';
import { type Duration, hasEnd } from './run-control.js';
import type { Batches } from './training.js';

/** The loss of a step, and how it corrects for data of older policies. */
export const Objective = z.object({
  loss: LossName.default('cispo').describe("the backend's loss function."),
  clipLow: number
    .min(0)
    .optional()
    .describe(
      `lower clip bound of the importance ratio; default: ${lossDefaults('clip_low_threshold')}.`,
    ),
  clipHigh: number
    .positive()
    .optional()
    .describe(
      `upper clip bound of the importance ratio; default: ${lossDefaults('clip_high_threshold')}.`,
    ),
  droBeta: number
    .positive()
    .optional()
    .describe(`weight of the quadratic term; default: ${lossDefaults('beta')}.`),
  correction: z
    .enum(['in_loss', 'token_weights', 'sequence_weights'])
    .default('in_loss')
    .describe(
      "in_loss corrects by the loss's own ratio to the behavior policy. The others use truncated importance weights, " +
        "and the loss's ratio is to the policy at the start of the step (with ppo: decoupled PPO). They cost a forward " +
        'pass, and with --num-substeps the whole batch must arrive before any of it is sent.',
    ),
  weightCap: number
    .positive()
    .optional()
    .describe('upper bound at which --correction truncates its weights; default 2.'),
  mask: z
    .enum(['none', 'icepop', 'sequence', 'geometric'])
    .default('none')
    .describe(
      'leaves out data that is too far off-policy: tokens by their own ratio (icepop), or rollouts by the product ' +
        '(sequence) or the geometric mean (geometric) of their ratios. Costs a forward pass.',
    ),
  maskLow: number
    .min(0)
    .optional()
    .describe('lowest ratio that --mask keeps; default: icepop and sequence 0.5, geometric 0.9.'),
  maskHigh: number
    .positive()
    .optional()
    .describe('highest ratio that --mask keeps; default: icepop and sequence 5, geometric 1.1.'),
  allowUncorrected: z
    .boolean()
    .default(false)
    .describe('allows training on stale data without any correction.'),
});
export type Objective = z.infer<typeof Objective>;

export function checkObjective(
  settings: Objective &
    Pick<Batches, 'maxStepsOffPolicy' | 'numSubsteps' | 'windowPolicy'> &
    Pick<Advantages, 'advantage' | 'normalization'>,
  addIssue: AddIssue<Objective & Pick<Batches, 'numSubsteps'> & Pick<Advantages, 'normalization'>>,
): void {
  checkLoss(settings, addIssue);
  checkCorrection(settings, addIssue);
  if (settings.windowPolicy === 'tokens') checkTokens(settings, addIssue);
  const { loss, mask, advantage, normalization, numSubsteps, allowUncorrected } = settings;
  const { maxStepsOffPolicy } = offPolicyFields(settings.maxStepsOffPolicy);
  if (
    losses[loss].scaledBy === undefined &&
    numSubsteps > 1 &&
    (mask !== 'none' || advantage === 'batch_std')
  ) {
    addIssue(
      'numSubsteps',
      `${loss} with a --mask or --advantage batch_std uses the prompt logprobs from before the first substep, ` +
        'and would pull the later substeps back to them: choose 1, or remove the --mask and batch_std',
    );
  }
  if (losses[loss].scaledBy === undefined && normalization !== 'none') {
    addIssue(
      'normalization',
      `it scales the advantages, and ${loss} has a term beside them that would outweigh them; choose none`,
    );
  }
  if (maxStepsOffPolicy > 0 && !isCorrected(settings) && !allowUncorrected) {
    addIssue(
      'loss',
      `${loss} corrects nothing, and data may be ${maxStepsOffPolicy} versions old: choose cispo, add ` +
        '--correction token_weights or --max-steps-off-policy 0, or allow it with --allow-uncorrected',
    );
  }
}

/** What takes an answer as a whole cannot be combined with a bound on tokens, which trains on a part of it. */
function checkTokens(
  { correction, mask, loss, numSubsteps }: Objective & Pick<Batches, 'numSubsteps'>,
  addIssue: AddIssue<Objective & Pick<Batches, 'numSubsteps'>>,
): void {
  const why = '--window-policy tokens trains on a part of an answer, but';
  if (correction === 'sequence_weights') {
    addIssue(
      'correction',
      `${why} sequence_weights multiply the ratios of all its tokens; choose token_weights or in_loss`,
    );
  }
  if (mask === 'sequence' || mask === 'geometric') {
    addIssue('mask', `${why} ${mask} judges the ratios of all its tokens; choose icepop or none`);
  }
  if (losses[loss].scaledBy === undefined && numSubsteps > 1) {
    addIssue(
      'numSubsteps',
      `${loss} would pull the masked tokens of the later substeps back to the logprobs from before the first; choose 1`,
    );
  }
}

/** Whether the loss, the weights or a mask corrects for data that another policy sampled. */
function isCorrected({ loss, correction, mask }: Objective): boolean {
  return losses[loss].inputs.includes('logprobs') || correction !== 'in_loss' || mask !== 'none';
}

function checkLoss(settings: Objective, addIssue: AddIssue<Objective>): void {
  const { loss } = settings;
  for (const [setting, { key, absence }] of Object.entries(lossFlags)) {
    if (!(setting in losses[loss].settings) && settings[key] !== undefined)
      addIssue(key, `--loss ${loss} ${absence}; remove it`);
  }
  const bounds = ratioBounds(loss, lossConfig(settings));
  checkBounds(bounds, ['clipLow', 'clipHigh'], addIssue);
}

/** Bounds of a ratio, which is 1 where the policy has not changed: those that leave out 1 act on every fresh token. */
function checkBounds(
  { low, high }: RatioBounds,
  [lowKey, highKey]: readonly ['clipLow', 'clipHigh'] | readonly ['maskLow', 'maskHigh'],
  addIssue: AddIssue<Objective>,
): void {
  const what =
    'it bounds the ratio itself, which is 1 for an unchanged policy: where a paper says ε = 0.2, give 0.8 and 1.2';
  if (low >= high) {
    addIssue(highKey, `it is ${high}, and must be above --${kebab(lowKey)}, which is ${low}`);
  } else if (low > 1) addIssue(lowKey, what);
  else if (high < 1) addIssue(highKey, what);
}

function checkCorrection(settings: Objective, addIssue: AddIssue<Objective>): void {
  const { loss, correction, mask } = settings;
  if (correction !== 'in_loss' && losses[loss].scaledBy === undefined) {
    const why = `${loss} needs the distance to the behavior policy`;
    addIssue('correction', `${why}; choose in_loss`);
  }
  if (correction === 'in_loss' && settings.weightCap !== undefined) {
    addIssue('weightCap', '--correction in_loss has no weights; remove it');
  }
  for (const key of ['maskLow', 'maskHigh'] as const) {
    if (mask === 'none' && settings[key] !== undefined)
      addIssue(key, 'there is no --mask; remove it');
  }
  const bounds = correctionOf(settings).mask;
  if (bounds.kind !== 'none') checkBounds(bounds, ['maskLow', 'maskHigh'], addIssue);
}

/** Every setting of the loss, explicitly: the defaults of backends differ. */
export function lossConfig(
  settings: Pick<Objective, 'loss' | 'clipLow' | 'clipHigh' | 'droBeta'>,
): Record<string, number> {
  const given = Object.entries(lossFlags).map(
    ([setting, { key }]) => [setting, settings[key]] as const,
  );
  return lossSettings(settings.loss, Object.fromEntries(given), 'learner');
}

/** The flag of each setting of a loss, and the reason to refuse it for a loss that lacks the setting. */
const lossFlags = {
  clip_low_threshold: { key: 'clipLow', absence: 'clips nothing' },
  clip_high_threshold: { key: 'clipHigh', absence: 'clips nothing' },
  beta: { key: 'droBeta', absence: 'has no beta' },
} as const satisfies Record<LossSetting, { key: keyof Objective; absence: string }>;

/** Lists the losses that have this setting, each with the learner's default. */
function lossDefaults(setting: LossSetting): string {
  return Object.entries(losses)
    .flatMap(([name, { settings }]) => {
      const value = settings[setting];
      return value === undefined ? [] : [`${name} ${value.learner}`];
    })
    .join(', ');
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

/** The bounds of the IcePop paper, but tighter for a geometric mean, which varies less the longer the answers are. */
const maskBounds = {
  icepop: { low: 0.5, high: 5 },
  sequence: { low: 0.5, high: 5 },
  geometric: { low: 0.9, high: 1.1 },
};

/** How advantages are computed: the baseline, and the extra terms of each token. */
export const Advantages = z.object({
  ...settingsOf(advantages),
  maxrlUntil: number
    .gt(0)
    .lt(1)
    .optional()
    .describe(
      'share of the run after which --advantage maxrl gives way to mean_centred: first many ways to an answer, then one sure one; ' +
        'by default never. npm start uses 0.85 for the embedded model, with maxrl.',
    ),
  lengthPenalty: number
    .min(0)
    .default(0)
    .describe('reward that the longest answer loses when it is compared with its group.'),
  lengthFree: int
    .min(0)
    .default(0)
    .describe('answers up to N tokens are exempt from --length-penalty.'),
  klPenalty: number
    .min(0)
    .default(0)
    .describe(
      'weight of KL to the base model in the advantages; costs a forward pass of the base model.',
    ),
  entropyBonus: number
    .min(0)
    .default(0)
    .describe('weight of the entropy of the next token in the advantages.'),
  entropyTarget: number
    .positive()
    .optional()
    .describe(
      'entropy, in nats per token, at which --entropy-bonus has faded to 0; without it the bonus is constant.',
    ),
});
export type Advantages = z.infer<typeof Advantages>;

export function checkAdvantages(
  settings: Advantages & Duration,
  addIssue: AddIssue<Advantages>,
): void {
  const { lengthPenalty, lengthFree, entropyBonus, entropyTarget } = settings;
  if (settings.advantage === 'reward' && settings.zeroVariance === 'refill') {
    addIssue(
      'zeroVariance',
      '--advantage reward learns from groups of equal rewards too; choose train',
    );
  }
  if (settings.maxrlUntil !== undefined && settings.advantage !== 'maxrl') {
    addIssue('maxrlUntil', `--advantage is ${settings.advantage}; choose maxrl, or remove it`);
  }
  if (settings.maxrlUntil !== undefined && !hasEnd(settings)) {
    addIssue('maxrlUntil', 'it needs an end: add --max-steps or --max-minutes');
  }
  if (lengthPenalty === 0 && lengthFree > 0) {
    addIssue('lengthFree', 'there is no --length-penalty; remove it');
  }
  if (entropyBonus === 0 && entropyTarget !== undefined) {
    addIssue('entropyTarget', 'there is no --entropy-bonus; remove it');
  }
}

export function extraTerms(settings: Advantages): ExtraTerms {
  const { lengthPenalty, lengthFree, klPenalty, entropyBonus, entropyTarget } = settings;
  return {
    lengthPenalty: { weight: lengthPenalty, freeTokens: lengthFree },
    klPenalty,
    entropyBonus: {
      coefficient: entropyBonus,
      ...(entropyTarget !== undefined && { target: entropyTarget }),
    },
  };
}
