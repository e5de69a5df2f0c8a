import { UserError } from '../shared/base/errors.js';
import { readModelDirectory } from '../shared/model/model-directory.js';
import { loadTokenizer } from '../shared/model/tokenizer.js';
import { openTask, withDataAt } from '../shared/tasks/registry.js';
import type { RunConfig } from '../shared/run/run-config.js';
import type { RewardServiceConfig } from './config.js';
import { createJudge, type Judge } from './judge.js';

/**
 * A judge of the run, from this machine's copies of its problems and its tokenizer.
 *
 * @throws {UserError} if either is not the one that the run trains with, or cannot be read.
 */
export async function loadJudge(
  run: RunConfig,
  config: Pick<RewardServiceConfig, 'modelDir' | 'datasetPath'>,
): Promise<Judge> {
  const dataset = await openTask(withDataAt(run.task, config.datasetPath)).load();
  if (dataset.digest !== run.datasetDigest) {
    throw new UserError(
      `the problems here have the digest ${dataset.digest}, those of run ${run.run} ${run.datasetDigest}; ` +
        'give this service the same file (--dataset-path) and the same release of offbeat as the learner',
    );
  }
  const model = await readModelDirectory(config.modelDir);
  if (model.digest !== run.model.digest) {
    throw new UserError(
      `the model in ${config.modelDir} has the digest ${model.digest}, that of run ${run.run} ` +
        `(${run.model.name}) ${run.model.digest}; name the learner's model with --model-dir`,
    );
  }
  return createJudge(run, dataset, await loadTokenizer(model), model.config.vocabSize);
}
