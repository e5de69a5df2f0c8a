import { z } from 'zod';
import { Schedule } from '../../shared/rl/learning-rate.js';
import { adam, batching, sampling, settingsOf } from '../../shared/run/hyperparameters.js';
import { type AddIssue, int, number } from '../../shared/service/config-fields.js';
import { TaskSettings } from '../../shared/tasks/registry.js';
import type { Duration } from './run-control.js';

/** What the model is to learn: problems, how they are put and what an answer earns. */
export const Task = z.object({
  seed: int.min(0).default(0).describe('of the order of problems, sampling and adapter.'),
  ...TaskSettings.shape,
});
export type Task = z.infer<typeof Task>;

/** What is sampled, how it is cut into optimizer steps, and how old it may be by then. */
export const Batches = z.object({ ...settingsOf(sampling), ...settingsOf(batching) });
export type Batches = z.infer<typeof Batches>;

export function checkBatches(batches: Batches, addIssue: AddIssue<Batches>): void {
  const { groupsPerBatch, numSubsteps, numMinibatches, sampleLag, maxStepsOffPolicy } = batches;
  if (maxStepsOffPolicy === 0 && batches.windowPolicy === 'drop') {
    addIssue(
      'windowPolicy',
      'with --max-steps-off-policy 0 every group belongs to the step in progress, so there is nothing ' +
        'to drop one for; choose wait',
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

/** What is trained, and how its weights move. */
export const Optimizer = z.object({
  loraRank: int.positive().default(32).describe('rank of the adapter.'),
  ...settingsOf(adam),
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
});
export type Optimizer = z.infer<typeof Optimizer>;

export function checkOptimizer(
  settings: Optimizer & Duration,
  addIssue: AddIssue<Optimizer>,
): void {
  const { schedule, finalRateShare, maxSteps, maxMinutes } = settings;
  if (schedule === 'constant' && finalRateShare !== undefined) {
    addIssue('finalRateShare', '--schedule constant ends where it begins; remove it');
  }
  if (schedule !== 'constant' && maxSteps === undefined && maxMinutes === undefined) {
    addIssue('schedule', 'it needs to know the end: add --max-steps or --max-minutes');
  }
}

export function scheduleOf({ schedule, warmupSteps, finalRateShare }: Optimizer): Schedule {
  const finalShare = schedule === 'constant' ? 1 : (finalRateShare ?? 0.1);
  return { kind: schedule, warmupSteps, finalShare };
}
