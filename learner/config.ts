import { hostname } from 'node:os';
import { z } from 'zod';
import { embeddedModelPath } from '../shared/model/model-directory.js';
import { embeddedDataset } from '../shared/countdown/embedded-dataset.js';
import { LossName, RunName, type DatasetSpec, type RunConfig } from '../shared/wire/run-config.js';

const whole = z.coerce.number().int();
const real = z.coerce.number();
const text = z.string().min(1);

/** What to train and where to find things. What to train becomes the run's configuration in NATS. */
export const LearnerConfig = z
  .object({
    run: RunName.describe('name of the run.'),
    name: text
      .max(128)
      .default(() => `${hostname()}-${process.pid}`)
      .describe('who holds the lease to train; a restart under one name takes over at once.'),
    natsUrl: text.default('nats://127.0.0.1:4222').describe('the NATS server, with JetStream.'),
    backendUrl: z
      .url()
      .default('http://127.0.0.1:10610')
      .describe('a Tinker server: TuFT or the local backend.'),
    apiKey: text.default('tml-local').describe('key for --backend-url.'),
    checkpointDir: text
      .optional()
      .describe("the backend's checkpoint directory, if it is mounted here under another path."),
    modelDir: text
      .default(embeddedModelPath)
      .describe('Hugging Face directory of the model, which actors must hold too.'),
    modelName: text
      .optional()
      .describe('the model as the backend calls it; by default the only one that it serves.'),
    runDir: text.optional().describe('folder of metrics.jsonl and summary.json; runs/<run>.'),
    healthHost: text.default('127.0.0.1').describe('address of /healthz, /readyz and /metrics.'),
    healthPort: whole.min(0).max(65535).default(0).describe('and its port; 0: any, see the log.'),

    maxSteps: whole
      .positive()
      .optional()
      .describe('end after N optimizer steps, those before a resume included.'),
    maxMinutes: real
      .positive()
      .optional()
      .describe(
        'end after N minutes of training; evaluations do not count, nor earlier processes.',
      ),
    evalProblems: whole
      .min(0)
      .default(256)
      .describe('held-out problems to measure before and after training; 0: no evaluation.'),
    evalSamples: whole
      .positive()
      .default(4)
      .describe('answers to each of them at the training temperature; one more is greedy.'),
    checkpointEverySteps: whole
      .positive()
      .default(10)
      .describe('steps between checkpoints: what a crash of backend or learner can cost.'),

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

    loraRank: whole.positive().default(32).describe('rank of the adapter.'),
    loss: LossName.default('cispo').describe("the backend's loss function."),
    clipLow: real
      .min(0)
      .optional()
      .describe('lowest importance ratio that counts; cispo 0, ppo 0.8.'),
    clipHigh: real.positive().optional().describe('and the highest; cispo 4, ppo 1.2.'),
    droBeta: real.positive().optional().describe('weight of the quadratic term of dro; 0.01.'),
    advantage: z
      .enum(['mean_centred', 'mean_std', 'leave_one_out'])
      .default('mean_centred')
      .describe('how a rollout is compared with its group.'),
    normalization: z
      .enum(['none', 'token', 'sequence'])
      .default('none')
      .describe('how the sum over tokens is weighted.'),
    learningRate: real.positive().default(5e-4).describe('of AdamW.'),
    beta1: real.min(0).lt(1).default(0.9).describe('of AdamW.'),
    beta2: real.min(0).lt(1).default(0.95).describe('of AdamW.'),
    eps: real.positive().default(1e-12).describe('of AdamW.'),
    weightDecay: real.min(0).default(0).describe('of AdamW, decoupled.'),
    gradClipNorm: real.min(0).default(0).describe('largest global gradient norm; 0: no clipping.'),
  })
  .check(({ value, issues }) => {
    const complain = (key: keyof typeof value, message: string) =>
      issues.push({ code: 'custom', input: value, path: [key], message });
    const { groupsPerBatch, numMinibatches, loss } = value;
    if (groupsPerBatch % numMinibatches !== 0) {
      complain('numMinibatches', `it must divide --groups-per-batch, which is ${groupsPerBatch}`);
    }
    const clips = loss === 'cispo' || loss === 'ppo';
    for (const key of ['clipLow', 'clipHigh'] as const) {
      if (!clips && value[key] !== undefined)
        complain(key, `--loss ${loss} clips nothing; remove it`);
    }
    const { clip_low_threshold: low, clip_high_threshold: high } = lossConfig(value);
    if (low !== undefined && high !== undefined && low >= high) {
      complain('clipHigh', `it must be above --clip-low, which is ${low}`);
    }
    if (loss !== 'dro' && value.droBeta !== undefined) {
      complain('droBeta', `--loss ${loss} has no beta; remove it`);
    }
    if (loss === 'cross_entropy' && value.maxStepsOffPolicy > 0) {
      complain(
        'loss',
        'cross_entropy corrects nothing, so it is on-policy only: add --max-steps-off-policy 0 or choose cispo',
      );
    }
    if (value.evalProblems > value.testSize && value.dataset === 'generator') {
      complain('evalProblems', `only --test-size ${value.testSize} problems are held out`);
    }
  });
export type LearnerConfig = z.infer<typeof LearnerConfig>;

/** Where the problems come from, as every process of the run must load them. */
export function datasetSpec(config: LearnerConfig): DatasetSpec {
  const { datasetSeed: seed, testSize } = config;
  if (config.dataset !== 'generator') {
    return { kind: 'jsonl', path: config.dataset, seed, testSize };
  }
  const { maxNumber, maxTarget, trainSize } = config;
  const numbers = config.numbers.split(',').map(Number);
  return { kind: 'generator', seed, numbers, maxNumber, maxTarget, trainSize, testSize };
}

/** The run's configuration, with what only the files themselves tell. */
export function runConfig(
  config: LearnerConfig,
  found: { readonly model: RunConfig['model']; readonly datasetDigest: string },
): RunConfig {
  const { beta1, beta2, eps, learningRate, weightDecay, gradClipNorm } = config;
  const { formatScore, shaping, numbersToUse, targetTail } = config;
  return {
    v: 1,
    run: config.run,
    seed: config.seed,
    model: found.model,
    dataset: datasetSpec(config),
    datasetDigest: found.datasetDigest,
    promptStyle: config.promptStyle,
    reward: { formatScore, shaping, numbersToUse, targetTail },
    sampling: { temperature: config.temperature, maxTokens: config.maxTokens },
    groupSize: config.groupSize,
    groupsPerBatch: config.groupsPerBatch,
    numMinibatches: config.numMinibatches,
    maxStepsOffPolicy: config.maxStepsOffPolicy,
    lora: { rank: config.loraRank, seed: config.seed },
    loss: { name: config.loss, config: lossConfig(config) },
    advantage: config.advantage,
    normalization: config.normalization,
    adam: { learningRate, beta1, beta2, eps, weightDecay, gradClipNorm },
  };
}

type LossSettings = Pick<LearnerConfig, 'loss' | 'clipLow' | 'clipHigh' | 'droBeta'>;

/** Always complete: servers have defaults of their own, and they differ. */
function lossConfig({ loss, clipLow, clipHigh, droBeta }: LossSettings): Record<string, number> {
  switch (loss) {
    case 'cispo':
      return { clip_low_threshold: clipLow ?? 0, clip_high_threshold: clipHigh ?? 4 };
    case 'ppo':
      return { clip_low_threshold: clipLow ?? 0.8, clip_high_threshold: clipHigh ?? 1.2 };
    case 'dro':
      return { beta: droBeta ?? 0.01 };
    case 'importance_sampling':
    case 'cross_entropy':
      return {};
  }
}

/**
 * The paths at which a stored configuration and this one differ, each with both values. A run keeps
 * the configuration that it began with.
 */
export function configDifferences(stored: RunConfig, ours: RunConfig): string[] {
  const flatten = (value: unknown, path: string): [string, string][] =>
    typeof value === 'object' && value !== null
      ? Object.entries(value).flatMap(([key, part]) => flatten(part, path ? `${path}.${key}` : key))
      : [[path, JSON.stringify(value)]];
  const theirs = new Map(flatten(stored, ''));
  const mine = new Map(flatten(ours, ''));
  return [...new Set([...theirs.keys(), ...mine.keys()])]
    .filter((path) => theirs.get(path) !== mine.get(path))
    .map(
      (path) =>
        `${path}: stored ${theirs.get(path) ?? 'none'}, asked for ${mine.get(path) ?? 'none'}`,
    );
}
