import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../shared/base/errors.js';
import type { ModelConfig } from '../shared/model/model-config.js';
import {
  type ModelDirectory,
  readModelConfig,
  readModelDirectory,
} from '../shared/model/model-directory.js';
import { loadTokenizer, type Tokenizer } from '../shared/model/tokenizer.js';
import type { Dataset } from '../shared/tasks/dataset.js';
import type { Task } from '../shared/tasks/task.js';
import type { RunConfig } from '../shared/run/run-config.js';
import { loadRunData, requireModelOf } from '../shared/run/run-data.js';
import type { ActorConfig } from './config.js';

/** The data and model files of an actor; they must be the same as the learner's. */
export interface JoinedRun {
  readonly task: Task;
  readonly dataset: Dataset;
  readonly tokenizer: Tokenizer;
  readonly config: ModelConfig;
  readonly directory: ModelDirectory | undefined; // absent when the directory has only the tokenizer
}

/**
 * Loads the run's dataset and this actor's model directory.
 *
 * If the backend samples, the actor needs only the tokenizer, and the model's digest is compared only
 * if the weights are present.
 *
 * @throws {UserError} if the dataset or the model differs from what the run is trained on.
 */
export async function joinRun(
  runConfig: RunConfig,
  { modelDir, datasetPath, sampler }: Pick<ActorConfig, 'modelDir' | 'datasetPath' | 'sampler'>,
): Promise<JoinedRun> {
  const { task, dataset } = await loadRunData(runConfig, { datasetPath });
  const directory =
    sampler === 'onnx' || hasWeights(modelDir) ? await readModelDirectory(modelDir) : undefined;
  if (directory !== undefined) requireModelOf(runConfig, directory);
  const config = directory?.config ?? (await readModelConfig(modelDir));
  const tokenizer = await loadTokenizer({ path: modelDir, config });
  return { task, dataset, directory, config, tokenizer };
}

function hasWeights(modelDir: string): boolean {
  return ['model.safetensors', 'model.safetensors.index.json'].some((file) =>
    existsSync(join(modelDir, file)),
  );
}

/**
 * Checks that this actor adopts new versions within an answer, if the run needs that. With `--window-policy tokens` a
 * long answer continues under newer versions; sampled by one version alone, it would become too old as a whole.
 *
 * @throws {UserError} if this actor does not.
 */
export function requireAdoption(
  { run, windowPolicy }: Pick<RunConfig, 'run' | 'windowPolicy'>,
  {
    inFlightUpdates,
    sampler,
    segmentTokens,
  }: Pick<ActorConfig, 'inFlightUpdates' | 'sampler' | 'segmentTokens'>,
): void {
  if (windowPolicy !== 'tokens') return;
  const why = `run ${run} has --window-policy tokens, so an answer must be able to adopt new versions while it is sampled`;
  if (!inFlightUpdates) throw new UserError(`${why}; remove --no-in-flight-updates`);
  if (sampler !== 'onnx' && segmentTokens === 0) {
    throw new UserError(`${why}; with --sampler ${sampler} give --segment-tokens, such as 256`);
  }
}
