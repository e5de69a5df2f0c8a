import { UserError } from '../base/errors.js';
import type { ModelDirectory } from '../model/model-directory.js';
import type { Dataset } from '../tasks/dataset.js';
import { openTask, withDataAt } from '../tasks/registry.js';
import type { Task } from '../tasks/task.js';
import type { RunConfig } from './run-config.js';

/**
 * Loads the problems of a run from this machine.
 *
 * @param config of a service, with where this machine has the run's file, if not where its learner has it.
 * @throws {UserError} if they are not those of the run.
 */
export async function loadRunData(
  { run, task: spec, datasetDigest }: Pick<RunConfig, 'run' | 'task' | 'datasetDigest'>,
  config?: { readonly datasetPath?: string | undefined },
): Promise<{ readonly task: Task; readonly dataset: Dataset }> {
  const task = openTask(withDataAt(spec, config?.datasetPath));
  const dataset = await task.load();
  if (dataset.digest !== datasetDigest) {
    throw new UserError(
      `the problems here have the digest ${dataset.digest}, those of run ${run} ${datasetDigest}; ` +
        `use the data that its learner has${config === undefined ? '' : ' (--dataset-path)'}, and the same release of offbeat`,
    );
  }
  return { task, dataset };
}

/**
 * The digest by which a run knows the model of a directory. Runs that began when a digest did not cover the chat template
 * have the one without it.
 *
 * @param stored the digest that the run has; undefined for a new run.
 */
export function digestFor(
  stored: string | undefined,
  { digest, digestWithoutTemplate }: Pick<ModelDirectory, 'digest' | 'digestWithoutTemplate'>,
): string {
  return stored === digestWithoutTemplate ? digestWithoutTemplate : digest;
}

/** @throws {UserError} if a model directory does not hold the base model of a run. */
export function requireModelOf(
  { run, model }: Pick<RunConfig, 'run' | 'model'>,
  directory: Pick<ModelDirectory, 'path' | 'digest' | 'digestWithoutTemplate'>,
): void {
  const digest = digestFor(model.digest, directory);
  if (digest === model.digest) return;
  throw new UserError(
    `the model in ${directory.path} has the digest ${digest}, that of run ${run} (${model.name}) ${model.digest}; ` +
      "name the directory of the learner's model with --model-dir: its files must be the same, also the chat template",
  );
}
