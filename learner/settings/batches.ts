import { z } from 'zod';
import { real, whole, type Complain } from './fields.js';

/** What is sampled, how it is cut into optimizer steps, and how old it may be by then. */
export const Batches = z.object({
  temperature: real.positive().default(1).describe('of sampling, and of the loss.'),
  maxTokens: whole.positive().default(20).describe('longest answer.'),
  groupSize: whole.min(2).default(16).describe('rollouts of one prompt.'),
  groupsPerBatch: whole.positive().default(64).describe('groups of one optimizer step.'),
  numMinibatches: whole
    .positive()
    .default(4)
    .describe('equal parts of a batch, each sent to the backend as soon as it is full.'),
  maxStepsOffPolicy: whole
    .min(0)
    .default(2)
    .describe('how many versions old the data of a step may be; 0: synchronous.'),
});
export type Batches = z.infer<typeof Batches>;

export function checkBatches(
  { groupsPerBatch, numMinibatches }: Batches,
  complain: Complain<Batches>,
): void {
  if (groupsPerBatch % numMinibatches !== 0) {
    complain('numMinibatches', `it must divide --groups-per-batch, which is ${groupsPerBatch}`);
  }
}
