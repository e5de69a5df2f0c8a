import { z } from 'zod';
import { number, int } from '../../shared/service/config-fields.js';
import type { Complain } from './complain.js';

/** What is sampled, how it is cut into optimizer steps, and how old it may be by then. */
export const Batches = z.object({
  temperature: number.positive().default(1).describe('of sampling, and of the loss.'),
  maxTokens: int.positive().default(20).describe('longest answer.'),
  groupSize: int.min(2).default(16).describe('rollouts of one prompt.'),
  replayShare: number
    .min(0)
    .lt(1)
    .default(0)
    .describe(
      'share of groups for problems that were tried before, preferring those that are likely to be ' +
        'answered both rightly and wrongly; the others go through all problems in turn.',
    ),
  groupsPerBatch: int.positive().default(64).describe('groups of one step, and so of a version.'),
  numSubsteps: int
    .positive()
    .default(1)
    .describe('optimizer steps of a batch, each on an equal part of it.'),
  numMinibatches: int
    .positive()
    .default(4)
    .describe('equal parts of a substep, each sent to the backend as soon as it is full.'),
  maxStepsOffPolicy: int
    .min(0)
    .default(2)
    .describe('how many versions old the data of a step may be; 0: synchronous.'),
  sampleLag: int
    .min(0)
    .default(0)
    .describe(
      'hold sampling back by N versions, to study what stale data does; --max-steps-off-policy allows it.',
    ),
  windowPolicy: z
    .enum(['wait', 'drop'])
    .default('wait')
    .describe('for a group that must be trained now or never; drop: train others, lose it.'),
});
export type Batches = z.infer<typeof Batches>;

export function checkBatches(batches: Batches, complain: Complain<Batches>): void {
  const { groupsPerBatch, numSubsteps, numMinibatches, sampleLag, maxStepsOffPolicy } = batches;
  if (maxStepsOffPolicy === 0 && batches.windowPolicy === 'drop') {
    complain(
      'windowPolicy',
      'with --max-steps-off-policy 0 every group belongs to the step in progress, so there is nothing ' +
        'to drop one for; choose wait',
    );
  }
  if (sampleLag > maxStepsOffPolicy) {
    complain('sampleLag', `--max-steps-off-policy allows ${maxStepsOffPolicy}`);
  }
  const substep = groupsPerBatch / numSubsteps;
  if (!Number.isInteger(substep)) {
    complain('numSubsteps', `it must divide --groups-per-batch, which is ${groupsPerBatch}`);
  } else if (substep % numMinibatches !== 0) {
    const whole =
      numSubsteps === 1
        ? `--groups-per-batch, which is ${groupsPerBatch}`
        : `the ${substep} groups of each of --num-substeps ${numSubsteps}`;
    complain('numMinibatches', `it must divide ${whole}`);
  }
}
