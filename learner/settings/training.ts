import { z } from 'zod';
import { UserError } from '../../shared/base/errors.js';
import { Schedule } from '../../shared/rl/learning-rate.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import {
  adam,
  batching,
  OffPolicyBound,
  offPolicyFields,
  sampling,
  settingsOf,
} from '../../shared/run/hyperparameters.js';
import { type AddIssue, int, number, string } from '../../shared/service/config-fields.js';
import { TaskSettings } from '../../shared/tasks/registry.js';
import { type Duration, hasEnd } from './run-control.js';

/** The task: its problems, their prompts and the reward of an answer. */
export const Task = z.object({
  seed: int.min(0).default(0).describe('seed of the problem order, the sampling and the adapter.'),
  ...TaskSettings.shape,
});
export type Task = z.infer<typeof Task>;

/** How rollouts are sampled, how they are split into optimizer steps, and how stale they may be. */
export const Batches = z.object({
  ...settingsOf(sampling),
  ...settingsOf(batching),
  maxStepsOffPolicy: OffPolicyBound.default(batching.maxStepsOffPolicy.fallback).describe(
    batching.maxStepsOffPolicy.help,
  ),
  curriculum: z
    .enum(['data', 'signal'])
    .default('data')
    .describe(
      'how often new problems are of each difficulty: as in the data, or by the share of its latest groups that had right and ' +
        'wrong answers. It changes with each checkpoint (--checkpoint-every-steps).',
    ),
  ticketsAhead: int
    .positive()
    .optional()
    .describe(
      'tickets that may wait for an actor; more are issued only when actors ask for them, so that data is fresh. By default ' +
        'a quarter of --groups-per-batch, and none are issued for groups that would only wait for the learner; if it is given, ' +
        'they are. As many as --max-steps-off-policy allows issues all of them at once.',
    ),
});
export type Batches = z.infer<typeof Batches>;

export function checkBatches(batches: Batches, addIssue: AddIssue<Batches>): void {
  const { groupsPerBatch, numSubsteps, numMinibatches, sampleLag } = batches;
  const { maxStepsOffPolicy, isBoundAdaptive } = offPolicyFields(batches.maxStepsOffPolicy);
  if (maxStepsOffPolicy === 0 && batches.windowPolicy !== 'wait') {
    addIssue(
      'windowPolicy',
      'with --max-steps-off-policy 0 every group belongs to the step in progress, so there is nothing ' +
        `to ${batches.windowPolicy === 'drop' ? 'drop one for' : 'mask'}; choose wait`,
    );
  }
  if (batches.windowPolicy === 'tokens' && sampleLag > 0) {
    addIssue(
      'windowPolicy',
      '--sample-lag keeps each answer on one version, so there are no tokens of several versions; choose wait or drop',
    );
  }
  if (batches.ticketsAhead !== undefined && (maxStepsOffPolicy === 0 || sampleLag > 0)) {
    const why =
      maxStepsOffPolicy === 0
        ? '--max-steps-off-policy 0 trains synchronously'
        : '--sample-lag delays them';
    addIssue('ticketsAhead', `${why}, so all tickets of a version are issued at once; remove it`);
  }
  if (isBoundAdaptive === true && sampleLag > 0) {
    addIssue(
      'sampleLag',
      `it fixes the age of the data, and --max-steps-off-policy ${batches.maxStepsOffPolicy} lets it change; give a number of versions`,
    );
  }
  if (sampleLag > maxStepsOffPolicy) {
    addIssue('sampleLag', `--max-steps-off-policy allows ${maxStepsOffPolicy}`);
  }
  const substep = groupsPerBatch / numSubsteps;
  if (!Number.isInteger(substep)) {
    addIssue('numSubsteps', `it must divide --groups-per-batch, which is ${groupsPerBatch}`);
  } else if (substep % numMinibatches !== 0) {
    const divided =
      numSubsteps === 1
        ? `--groups-per-batch, which is ${groupsPerBatch}`
        : `the ${substep} groups of each of --num-substeps ${numSubsteps}`;
    addIssue('numMinibatches', `it must divide ${divided}`);
  }
}

/** The adapter, the optimizer and its learning rate schedule. */
export const Optimizer = z.object({
  loraRank: int.positive().default(32).describe('rank of the LoRA adapter.'),
  ...settingsOf(adam),
  from: string
    .optional()
    .describe(
      'saved weights to start from, with a new optimizer: RUN or RUN@STEP of offbeat up and sft, or a path tinker://… of the ' +
        'backend; by default the base model.',
    ),
  fromRun: string
    .optional()
    .describe('RUN@STEP that made the weights of a --from path; only recorded.'),
  schedule: Schedule.shape.kind
    .default('constant')
    .describe(
      'how the learning rate falls from its peak, over --max-steps or --max-minutes, whichever is nearer its end; ' +
        'npm start uses cosine.',
    ),
  warmupSteps: int
    .min(0)
    .default(0)
    .describe('steps over which the learning rate rises linearly to its peak.'),
  finalRateShare: number
    .min(0)
    .max(1)
    .optional()
    .describe(
      'share of the peak learning rate that remains at the end of --schedule linear or cosine; default 0.1.',
    ),
});
export type Optimizer = z.infer<typeof Optimizer>;

export function checkOptimizer(
  settings: Optimizer & Duration & { readonly epochs?: number | undefined },
  addIssue: AddIssue<Optimizer>,
): void {
  const { schedule, finalRateShare, from, fromRun } = settings;
  if (schedule === 'constant' && finalRateShare !== undefined) {
    addIssue('finalRateShare', '--schedule constant keeps the learning rate; remove it');
  }
  if (schedule !== 'constant' && !hasEnd(settings)) {
    addIssue('schedule', 'it needs an end: add --max-steps or --max-minutes');
  }
  if (from !== undefined) {
    const isPath = from.startsWith('tinker://');
    if (!isPath && !fromPattern.test(from))
      addIssue('from', 'expected RUN, RUN@STEP or tinker://…');
    if (!isPath && fromRun !== undefined)
      addIssue('fromRun', '--from names the run already; remove it');
  } else if (fromRun !== undefined) addIssue('fromRun', 'there is no --from; remove it');
}

/** A run, and perhaps one of its steps. */
const fromPattern = /^[A-Za-z0-9_-]+(@\d+)?$/;

/**
 * The saved weights that the run starts from.
 *
 * @throws {UserError} if they are named by their run, whose folder only the launcher knows.
 */
export function startOf({ from, fromRun }: Optimizer): Pick<RunConfig, 'from'> {
  if (from === undefined) return {};
  if (!from.startsWith('tinker://')) {
    throw new UserError(
      `--from ${from} names a run, which offbeat up finds in --runs-dir; give a learner the path tinker://… of its state`,
    );
  }
  return { from: { path: from, ...(fromRun !== undefined && { run: fromRun }) } };
}

export function scheduleOf({ schedule, warmupSteps, finalRateShare }: Optimizer): Schedule {
  const finalShare = schedule === 'constant' ? 1 : (finalRateShare ?? 0.1);
  return { kind: schedule, warmupSteps, finalShare };
}
