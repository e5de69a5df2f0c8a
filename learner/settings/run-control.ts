import { z } from 'zod';
import type { DivergenceLimits } from '../../shared/rl/divergence.js';
import type { AuditLimits } from '../../shared/rl/logprob-audit.js';
import { arithmetics } from '../../shared/base/arithmetic.js';
import { type AddIssue, int, number } from '../../shared/service/config-fields.js';
import type { SelectionAuditOptions } from '../audit/selection-audit.js';

/** How long to train, and how many steps a crash may cost. */
export const Duration = z.object({
  maxSteps: int
    .positive()
    .optional()
    .describe('end after N steps, including those before a resume; a step trains one batch.'),
  maxMinutes: number
    .positive()
    .optional()
    .describe(
      'end after N minutes of training by this process; time spent on evaluations does not count.',
    ),
  checkpointEverySteps: int
    .positive()
    .default(10)
    .describe(
      'steps between checkpoints; a crash of the backend or the learner loses the steps since the last one. One comes earlier if 8,192 groups wait for it.',
    ),
  keepEverySteps: int
    .min(0)
    .default(0)
    .describe(
      'make a checkpoint at every N-th step too and keep it for good, besides the two newest and the best; 0 keeps only those.',
    ),
});
export type Duration = z.infer<typeof Duration>;

type Ends = Pick<Duration, 'maxSteps' | 'maxMinutes'> & { readonly epochs?: number | undefined };

/** Whether a run ends by itself, so that a share of it is defined. */
export function hasEnd({ maxSteps, maxMinutes, epochs }: Ends): boolean {
  return [maxSteps, maxMinutes, epochs].some((limit) => limit !== undefined);
}

const usualEvalProblems = 256;

/** How the policy is evaluated on held-out problems. */
export const Evaluation = z.object({
  evalProblems: int
    .min(0)
    .default(usualEvalProblems)
    .describe('held-out problems to evaluate the policy on; 0 disables evaluation.'),
  evalSamples: int
    .positive()
    .default(4)
    .describe(
      'answers per evaluation problem at the training temperature, besides one greedy answer.',
    ),
  evalEveryVersions: int
    .min(0)
    .default(20)
    .describe(
      'evaluate the version of every N-th step while training continues; 0 evaluates only before and after. npm start uses 80 ' +
        'with its 16 groups.',
    ),
});
export type Evaluation = z.infer<typeof Evaluation>;

export function checkEvaluation(
  { evalProblems, testSize }: Evaluation & { readonly testSize: number },
  addIssue: AddIssue<Evaluation>,
): void {
  if (evalProblems > testSize) {
    const isUsual = evalProblems === usualEvalProblems;
    addIssue(
      'evalProblems',
      `${isUsual ? `it is ${evalProblems} by default, but ` : ''}--test-size holds out ${testSize}; ` +
        `give --eval-problems ${testSize}, or hold out more`,
    );
  }
}

/** When to give up a run that has diverged; its last good checkpoint is kept. */
export const Stops = z.object({
  stopKl: number
    .min(0)
    .default(1)
    .describe(
      'give up when kl_sample_train_v2 stays above this, in nats per token; 0 disables it.',
    ),
  stopRewardShare: number
    .min(0)
    .lt(1)
    .default(0.3)
    .describe('give up when the reward stays below this share of its best; 0 disables it.'),
  stopPatience: int
    .positive()
    .default(10)
    .describe(
      'steps in a row out of bounds before --stop-kl or --stop-reward-share gives up; also the window of the mean reward.',
    ),
  stopZeroVariance: int
    .min(0)
    .default(1_000)
    .describe('give up when N groups in a row are skipped for no variance; 0 disables it.'),
});
export type Stops = z.infer<typeof Stops>;

export function divergenceLimits(settings: Stops): DivergenceLimits {
  const { stopKl, stopRewardShare: minRewardShare, stopPatience: patience } = settings;
  return { maxKl: stopKl === 0 ? Infinity : stopKl, minRewardShare, patience };
}

/** How the learner checks that actors sample with the policy that they name. */
export const Audit = z.object({
  trainerClass: z
    .enum(arithmetics)
    .default('bf16')
    .describe(
      "arithmetic in which --backend-url trains: fp32 (the local backend), bf16 or fp8; bounds how far an actor's logprobs " +
        'may be from it.',
    ),
  auditShare: number
    .min(0)
    .max(1)
    .default(1)
    .describe("share of the groups whose logprobs are compared with the learner's own."),
  auditVersionShare: number
    .min(0)
    .max(1)
    .default(0.01)
    .describe(
      'share of the groups whose logprobs are compared with those of the very version that they name, whatever its age; costs ' +
        'the backend a pass over some of their rollouts and, if it does not sample, an adapter more.',
    ),
  auditSelectionShare: number
    .min(0)
    .max(1)
    .default(0.005)
    .describe(
      "share of the groups whose tokens are chosen again, from their ticket's random numbers or as far as probability shows, to find " +
        'actors that draw several answers and send some; by a backend that samples, which it costs a pass over their rollouts.',
    ),
  auditRequireDraws: z
    .boolean()
    .default(false)
    .describe(
      "quarantine actors whose sampler does not say that it draws by the ticket's random numbers, as --sampler onnx does; any actor " +
        'can say so, or not.',
    ),
  auditOnSelection: z
    .enum(['report', 'quarantine'])
    .default('report')
    .describe(
      'what follows if answers are too probable or too often right, compared with other actors: report writes an event and the log.',
    ),
  auditNoise: number
    .positive()
    .default(0.05)
    .describe(
      'logprob difference, in nats per token, that is always tolerated; above it the audit compares with other actors.',
    ),
});
export type Audit = z.infer<typeof Audit>;

export function checkAudit(
  { auditRequireDraws, auditSelectionShare }: Audit,
  addIssue: AddIssue<Audit>,
): void {
  if (!auditRequireDraws || auditSelectionShare > 0) return;
  addIssue(
    'auditRequireDraws',
    '--audit-selection-share 0 looks at no group; raise it, or remove one of the two',
  );
}

export function auditLimits({ auditNoise: noise }: Audit): AuditLimits {
  return {
    window: 16,
    minGroups: 4,
    noise,
    factor: 5,
    // No server's arithmetic is off by half a nat, so this bound needs no comparison with other actors.
    alone: Math.max(0.5, noise),
    // One false alarm in 10⁹ groups or steps.
    proof: Math.log(1e9),
    maxRefused: 3,
  };
}

/** How the learner looks for actors that select their answers. */
export function selectionLimits(
  settings: Audit,
): Pick<SelectionAuditOptions, 'share' | 'requireDraws' | 'onSelection' | 'proof'> {
  return {
    share: settings.auditSelectionShare,
    requireDraws: settings.auditRequireDraws,
    onSelection: settings.auditOnSelection,
    proof: auditLimits(settings).proof,
  };
}
