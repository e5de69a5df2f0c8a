import { readFile, rm, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { errorText, UserError } from '../../shared/base/errors.js';
import { number, int } from '../../shared/service/config-fields.js';
import { flagsOf, loadConfig } from '../../shared/service/config.js';
import { decodeMoments, encodeMoments, freshMoments } from '../../shared/model/adamw.js';
import { characterVocabSize } from '../../shared/model/character-tokenizer.js';
import { embeddedModelPath, readModelDirectory } from '../../shared/model/model-directory.js';
import { readWeights } from '../../shared/model/model-weights.js';
import {
  qwen3ConfigText,
  randomWeights,
  writeModelDirectory,
} from '../../shared/model/model-writer.js';
import { loadTokenizer } from '../../shared/model/tokenizer.js';
import { refuseFlagsKeptByNpm } from '../../shared/service/npm-flags.js';
import { runService } from '../../shared/service/run-service.js';
import { pretrainedProblems } from '../../shared/tasks/countdown/generator.js';
import { batches } from './corpus.js';
import { LanguageModel } from './language-model.js';

/** The defaults train the embedded model. */
const PretrainConfig = z.object({
  out: z.string().default(embeddedModelPath).describe('folder of the model directory to write'),
  seed: int.nonnegative().default(0),
  steps: int.positive().default(8_000),
  batchSize: int.positive().default(256),
  learningRate: number.positive().default(3e-3),
  warmupSteps: int.positive().default(50),
  hiddenSize: int.positive().default(128),
  numLayers: int.positive().default(4),
  threads: int.positive().default(availableParallelism()),
  saveEvery: int.positive().default(250).describe('steps; --resume continues from there'),
  resume: z.boolean().default(false).describe('continue a training that was interrupted'),
});

await runService('pretrain', async ({ log, signal }) => {
  const argv = process.argv.slice(2);
  refuseFlagsKeptByNpm('pretrain', flagsOf(PretrainConfig.shape), argv, process.env);
  const config = loadConfig(PretrainConfig, 'pretrain', argv, process.env);
  const configText = qwen3ConfigText({
    vocabSize: characterVocabSize,
    hiddenSize: config.hiddenSize,
    intermediateSize: 3 * config.hiddenSize,
    numLayers: config.numLayers,
    numHeads: config.hiddenSize / 32,
    numKvHeads: config.hiddenSize / 64,
    headDim: 32,
    maxPositions: 64,
    hasTiedHead: true,
  });
  const optimizerFile = join(config.out, 'optimizer.safetensors');
  if (!config.resume) {
    await writeModelDirectory(config.out, configText, randomWeights(configText, config.seed));
    await rm(optimizerFile, { force: true });
  }
  const directory = await readModelDirectory(config.out);
  const weights = await readWeights(directory);
  const moments = config.resume
    ? decodeMoments(await readOptimizer(optimizerFile), weights)
    : freshMoments(weights);
  const model = await LanguageModel.create(directory.config, weights, moments, config.threads);
  const save = async () => {
    await writeModelDirectory(config.out, configText, weights);
    await writeFile(optimizerFile, encodeMoments(weights, moments));
  };
  const tokenizer = await loadTokenizer(directory);
  const { seed, batchSize: size } = config;
  const corpus = batches(tokenizer, pretrainedProblems, { size, seed, from: moments.step });

  while (moments.step < config.steps && !signal.aborted) {
    const step = moments.step + 1;
    const nats = await model.step(corpus.next().value, {
      learningRate: config.learningRate * schedule(step, config),
      beta1: 0.9,
      beta2: 0.95,
      eps: 1e-8,
      weightDecay: 0.01,
      gradClipNorm: 1,
    });
    if (step % 20 === 0) log.info({ step, natsPerToken: Number(nats.toFixed(4)) }, 'trained');
    if (step % config.saveEvery === 0) await save();
  }
  await save();
  if (moments.step === config.steps) await rm(optimizerFile);
  log.info({ out: config.out }, 'written');
});

/** @throws {UserError} if no interrupted training left its state there. */
async function readOptimizer(path: string): Promise<Uint8Array> {
  return readFile(path).catch((cause: unknown) => {
    throw new UserError(`no interrupted training to resume: ${errorText(cause)}`, { cause });
  });
}

/** Linear warm-up, then a cosine down to a tenth. */
function schedule(step: number, { steps, warmupSteps }: z.infer<typeof PretrainConfig>): number {
  if (step < warmupSteps) return step / warmupSteps;
  const progress = (step - warmupSteps) / Math.max(1, steps - warmupSteps);
  return 0.1 + 0.45 * (1 + Math.cos(Math.PI * progress));
}
