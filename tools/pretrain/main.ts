import { availableParallelism } from 'node:os';
import { z } from 'zod';
import { number, int } from '../../shared/service/config-fields.js';
import { flagsOf, loadConfig } from '../../shared/service/config.js';
import { characterVocabSize } from '../../shared/model/character-tokenizer.js';
import { embeddedModelPath, readModelDirectory } from '../../shared/model/model-directory.js';
import {
  qwen3ConfigText,
  randomWeights,
  writeModelDirectory,
} from '../../shared/model/model-writer.js';
import { loadTokenizer } from '../../shared/model/tokenizer.js';
import { refuseFlagsKeptByNpm } from '../../shared/service/npm-flags.js';
import { runService } from '../../shared/service/run-service.js';
import { embeddedDataset } from '../../shared/tasks/countdown/generator.js';
import { answeredProblems } from './corpus.js';
import { LanguageModel } from './language-model.js';

/** The defaults train the embedded model. */
const PretrainConfig = z.object({
  out: z.string().default(embeddedModelPath).describe('folder of the model directory to write'),
  seed: int.nonnegative().default(0),
  steps: int.positive().default(9_000),
  batchSize: int.positive().default(256),
  learningRate: number.positive().default(3e-3),
  warmupSteps: int.positive().default(50),
  hiddenSize: int.positive().default(128),
  numLayers: int.positive().default(4),
  maxNumber: int.positive().default(embeddedDataset.maxNumber),
  maxTarget: int.positive().default(embeddedDataset.maxTarget),
  carelessSteps: int
    .nonnegative()
    .default(300)
    .describe('the last steps, whose corpus has mistakes'),
  mistakes: number.min(0).max(1).default(0.5).describe('their share of the answers of that corpus'),
  threads: int.positive().default(availableParallelism()),
  saveEvery: int.nonnegative().default(0).describe('steps; 0: only at the end'),
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
  const weights = randomWeights(configText, config.seed);
  const save = () => writeModelDirectory(config.out, configText, weights);
  await save();
  const directory = await readModelDirectory(config.out);
  const model = await LanguageModel.create(directory.config, weights, config.threads);
  const { maxNumber, maxTarget } = config;
  const tokenizer = await loadTokenizer(directory);
  const heldOut = { ...embeddedDataset, maxNumber, maxTarget };
  const right = answeredProblems(tokenizer, { heldOut, mistakes: 0, seed: config.seed });
  const careless = answeredProblems(tokenizer, {
    heldOut,
    mistakes: config.mistakes,
    seed: config.seed + 1,
  });

  for (let step = 1; step <= config.steps && !signal.aborted; step++) {
    const corpus = step <= config.steps - config.carelessSteps ? right : careless;
    const examples = Array.from({ length: config.batchSize }, () => corpus.next().value);
    const nats = await model.step(examples, {
      learningRate: config.learningRate * schedule(step, config),
      beta1: 0.9,
      beta2: 0.95,
      eps: 1e-8,
      weightDecay: 0.01,
      gradClipNorm: 1,
    });
    if (step % 20 === 0) log.info({ step, natsPerToken: Number(nats.toFixed(4)) }, 'trained');
    if (config.saveEvery > 0 && step % config.saveEvery === 0) await save();
  }
  await save();
  log.info({ out: config.out }, 'written');
});

/** Linear warm-up, then a cosine down to a tenth. */
function schedule(step: number, { steps, warmupSteps }: z.infer<typeof PretrainConfig>): number {
  if (step < warmupSteps) return step / warmupSteps;
  const progress = (step - warmupSteps) / Math.max(1, steps - warmupSteps);
  return 0.1 + 0.45 * (1 + Math.cos(Math.PI * progress));
}
