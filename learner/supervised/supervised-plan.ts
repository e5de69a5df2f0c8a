import type { Dataset } from '../../shared/tasks/dataset.js';
import {
  openExamples,
  type Examples,
  type ExampleSource,
} from '../../shared/tasks/examples/training-examples.js';
import type { Task } from '../../shared/tasks/task.js';
import type { FittedConfig } from '../config.js';
import { batchOf } from '../settings/supervised.js';
import { BatchPlan } from './batch-plan.js';

/** What a run on examples trains on, and for how long. */
export interface SupervisedPlan {
  readonly plan: BatchPlan;
  readonly heldOut: Examples;
  readonly digest: string; // of the examples
  readonly maxSteps: number | undefined; // by --max-steps or --epochs, whichever ends first
}

/**
 * Opens the examples of `--data` and divides them into steps.
 *
 * @returns undefined if the run trains on sampled answers.
 * @throws {UserError} if there are no examples, or they are wrong.
 */
export async function supervisedPlan(
  settings: FittedConfig,
  found: Pick<ExampleSource, 'tokenizer' | 'maxPositions'> & {
    readonly task: Task;
    readonly dataset: Dataset;
  },
): Promise<SupervisedPlan | undefined> {
  const { data, heldOutExamples: heldOut, maxTokens, seed, epochs = Infinity } = settings;
  if (data === undefined) return undefined;
  const { stop } = found.task;
  const examples = await openExamples(data, { ...found, stop, heldOut, maxTokens, seed });
  const batch = batchOf(settings);
  const plan = new BatchPlan({ examples: examples.train, batch, epochs, seed });
  const maxSteps = Math.min(plan.steps, settings.maxSteps ?? Infinity);
  return {
    plan,
    heldOut: examples.heldOut,
    digest: examples.digest,
    maxSteps: maxSteps === Infinity ? undefined : maxSteps,
  };
}
