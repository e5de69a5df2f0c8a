import { z } from 'zod';
import { embeddedDataset } from '../../shared/countdown/embedded-dataset.js';
import type { DatasetSpec } from '../../shared/wire/run-config.js';
import { real, text, whole } from './fields.js';

/** What the model is to learn: problems, how they are put and what an answer earns. */
export const Task = z.object({
  seed: whole.min(0).default(0).describe('of the order of problems, sampling and adapter.'),
  dataset: text.default('generator').describe('generator, or the path of a JSONL file.'),
  numbers: z
    .string()
    .regex(/^\d+(,\d+)*$/, 'expected numbers separated by commas, as in 3,4')
    .default(embeddedDataset.numbers.join(','))
    .describe('how many numbers a generated problem may have.'),
  maxNumber: whole
    .positive()
    .default(embeddedDataset.maxNumber)
    .describe('the largest number of a generated problem.'),
  maxTarget: whole
    .positive()
    .default(embeddedDataset.maxTarget)
    .describe('the largest target of a generated problem.'),
  trainSize: whole
    .positive()
    .default(embeddedDataset.trainSize)
    .describe('generated problems to train on.'),
  testSize: whole
    .positive()
    .default(embeddedDataset.testSize)
    .describe('problems held out for evaluation: the first ones.'),
  datasetSeed: whole
    .min(0)
    .default(embeddedDataset.seed)
    .describe('of the generator, or of the order in a file; --seed leaves the problems alone.'),
  promptStyle: z
    .enum(['compact', 'fewshot', 'think'])
    .default('compact')
    .describe('how a problem is put to the model; the embedded model knows compact only.'),
  formatScore: real
    .min(0)
    .max(1)
    .default(0.1)
    .describe('reward of an answer in the right form that is not correct.'),
  shaping: z
    .enum(['none', 'constant', 'continuous'])
    .default('constant')
    .describe('none: reward 0 or 1 and nothing between.'),
  numbersToUse: z
    .enum(['all', 'some'])
    .default('all')
    .describe('some: an answer may leave numbers out, as in the classical game.'),
  targetTail: z
    .enum(['by_style', 'accept', 'refuse'])
    .default('by_style')
    .describe('whether an answer may end in "= 64", its target; by style: think only.'),
});
export type Task = z.infer<typeof Task>;

/** Where the problems come from, as every process of the run must load them. */
export function datasetSpec(task: Task): DatasetSpec {
  const { datasetSeed: seed, testSize } = task;
  if (task.dataset !== 'generator') {
    return { kind: 'jsonl', path: task.dataset, seed, testSize };
  }
  const { maxNumber, maxTarget, trainSize } = task;
  const numbers = task.numbers.split(',').map(Number);
  return { kind: 'generator', seed, numbers, maxNumber, maxTarget, trainSize, testSize };
}
