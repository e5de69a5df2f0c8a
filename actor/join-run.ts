import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errorText, UserError } from '../shared/base/errors.js';
import { parseModelConfig, type ModelConfig } from '../shared/model/model-config.js';
import { readModelDirectory, type ModelDirectory } from '../shared/model/model-directory.js';
import { loadTokenizer, type Tokenizer } from '../shared/model/tokenizer.js';
import type { Dataset } from '../shared/tasks/dataset.js';
import { openTask, withDataAt } from '../shared/tasks/registry.js';
import type { Task } from '../shared/tasks/task.js';
import type { RunConfig } from '../shared/run/run-config.js';
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
  const task = openTask(withDataAt(runConfig.task, datasetPath));
  const dataset = await task.load();
  if (dataset.digest !== runConfig.datasetDigest) {
    throw new UserError(
      `run ${runConfig.run} is trained on a dataset with digest ${runConfig.datasetDigest}, but the one here has ${dataset.digest}; give this actor the learner's data (--dataset-path) and version of offbeat`,
    );
  }
  const directory =
    sampler === 'onnx' || hasWeights(modelDir) ? await readModelDirectory(modelDir) : undefined;
  if (directory !== undefined && directory.digest !== runConfig.model.digest) {
    throw new UserError(
      `run ${runConfig.run} trains ${runConfig.model.name} with digest ${runConfig.model.digest}, but --model-dir ${modelDir} has ${directory.digest}; name the directory of the learner's model`,
    );
  }
  const config = directory?.config ?? (await readConfig(modelDir));
  const tokenizer = await loadTokenizer({ path: modelDir, config });
  return { task, dataset, directory, config, tokenizer };
}

function hasWeights(modelDir: string): boolean {
  return ['model.safetensors', 'model.safetensors.index.json'].some((file) =>
    existsSync(join(modelDir, file)),
  );
}

async function readConfig(modelDir: string): Promise<ModelConfig> {
  const path = join(modelDir, 'config.json');
  try {
    return parseModelConfig(await readFile(path, 'utf8'), path);
  } catch (cause) {
    if (cause instanceof UserError) throw cause;
    throw new UserError(
      `cannot read ${path} (${errorText(cause)}); --model-dir names a directory with config.json and the model's tokenizer`,
      { cause },
    );
  }
}

/**
 * Requires an actor that adopts versions within an answer, where the run needs that: with `--window-policy tokens` a long
 * answer continues under newer versions. From one version alone it would only become too old as a whole.
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
