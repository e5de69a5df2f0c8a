import { availableParallelism } from 'node:os';
import { LearnerConfig } from '../../learner/config.js';
import { CanarySource, canaryTexts } from '../../learner/publish/canary-source.js';
import { IdleClock } from '../../learner/step/idle-clock.js';
import { createRandom } from '../../shared/base/random.js';
import { adamWStep, freshMoments, type Gradients } from '../../shared/model/adamw.js';
import { Decoder } from '../../shared/model/decoder.js';
import { createAdapter, type Adapter } from '../../shared/model/lora.js';
import { embeddedModelPath, readModelDirectory } from '../../shared/model/model-directory.js';
import { readWeights } from '../../shared/model/model-weights.js';
import type { SampledRollout } from '../../shared/model/rollout-draft.js';
import { loadTokenizer } from '../../shared/model/tokenizer.js';
import { Trainer } from '../../shared/model/trainer.js';
import { groupAdvantages } from '../../shared/rl/advantages.js';
import type { Datum } from '../../shared/rl/datum.js';
import { fitToModel } from '../../shared/run/hyperparameters.js';
import { promptTokens } from '../../shared/tasks/prompt.js';
import { openTask, taskSpec } from '../../shared/tasks/registry.js';
import type { Canary } from '../../shared/wire/canary.js';
import { silent } from '../support/log.js';

/** The embedded model with the task and the settings of `npm start`. */
export async function embeddedSetting() {
  const directory = await readModelDirectory(embeddedModelPath);
  const weights = await readWeights(directory);
  const tokenizer = await loadTokenizer(directory);
  const given = LearnerConfig.parse({ run: 'canary' });
  const spec = await taskSpec(given);
  const settings = fitToModel(given, directory.config, spec.prompt);
  const task = openTask(spec);
  const dataset = await task.load();
  const threads = availableParallelism();
  const { maxPositions } = directory.config;
  const texts = canaryTexts({ task, dataset, tokenizer, seed: settings.seed, maxPositions });
  return {
    ...{ directory, weights, tokenizer, settings, task, dataset, texts },
    trainer: new Trainer(directory.config, weights, threads),
    decoder: Decoder.of(directory, { threads: 1 }),
  };
}
export type Setting = Awaited<ReturnType<typeof embeddedSetting>>;

/** A version of a policy, and groups of rollouts that it has sampled. */
export interface TrainedVersion {
  readonly adapter: Adapter;
  readonly sampled: readonly { readonly prompt: Int32Array; readonly rollouts: SampledRollout[] }[];
}

/** Trains a policy synchronously, with `groups` groups in a step. */
export async function trainVersions(
  { directory, tokenizer, settings, task, dataset, trainer, decoder }: Setting,
  { steps, groups, seed }: { steps: number; groups: number; seed: number },
): Promise<TrainedVersion[]> {
  const { loraRank: rank, temperature, maxTokens, learningRate } = settings;
  const { config } = directory;
  const adapter = createAdapter(config, { rank, alpha: 2 * rank, seed, attn: true, mlp: true });
  const moments = freshMoments(adapter.tensors);
  const random = createRandom(`canary ${seed}`);
  const versions: TrainedVersion[] = [];
  for (let version = 0; version <= steps; version++) {
    const problems = Array.from(
      { length: groups },
      () => dataset.train[random.int(dataset.train.length)]!,
    );
    const requests = problems.map((problem, i) => ({
      prompt: promptTokens(task.prompt(problem), tokenizer),
      ...{ count: 16, temperature, maxTokens, stopTokenIds: tokenizer.eosTokenIds },
      seed: version * 1_000 + i,
    }));
    const current = { version, adapter: copyOf(adapter) };
    const all = await decoder.sampleGroups(requests, () => current);
    const sampled = requests.map(({ prompt }, i) => ({ prompt, rollouts: all[i]! }));
    versions.push({ adapter: current.adapter, sampled });
    const data = sampled.flatMap(({ prompt, rollouts }, i) => {
      const rewards = rollouts.map(
        ({ tokens }) => task.score(problems[i]!, tokenizer.decode(tokens)).reward,
      );
      const advantages = groupAdvantages('mean_centred', rewards);
      return rollouts.map((rollout, r) => datum(prompt, rollout, advantages[r]!));
    });
    const gradients: Gradients = new Map();
    await trainer.forwardBackward(adapter, data, 'cispo', { temperature }, gradients);
    const { beta1, beta2, eps, weightDecay, gradClipNorm } = settings;
    const adam = { learningRate, beta1, beta2, eps, weightDecay, gradClipNorm };
    adamWStep(adapter.tensors, gradients, moments, adam);
  }
  return versions;
}

/** An adapter that later steps do not change. */
export function copyOf(
  { tensors, ...scale }: Adapter,
  change: (data: Float32Array, key: string) => Float32Array = (data) => data.slice(),
): Adapter {
  const copies = [...tensors].map(
    ([key, { dims, data }]) => [key, { dims, data: change(data, key) }] as const,
  );
  return { ...scale, tensors: new Map(copies) };
}

/** What computes the canary of a policy. */
export interface CanarySetting {
  readonly trainer: Pick<Trainer, 'forward'>;
  readonly texts: Setting['texts'];
  readonly settings: { readonly temperature: number };
}

/** The canaries of successive versions, from 0 on, as the learner requests them, in float32. */
export async function canariesOf(
  { trainer, texts, settings }: CanarySetting,
  adapters: readonly Adapter[],
): Promise<Canary[]> {
  const canaries: Canary[] = [];
  const source = new CanarySource({
    run: {
      forward: async (data, _loss, { temperature = 1 }) => ({
        logprobs: await trainer.forward(adapters[canaries.length]!, data, temperature),
        metrics: {},
      }),
    },
    ...{ texts, temperature: settings.temperature, arithmetic: 'fp32', log: silent },
    idle: new IdleClock(() => 0),
  });
  while (canaries.length < adapters.length) {
    canaries.push((await source.request(canaries.length)())!);
  }
  return canaries;
}

/** The adapter with the matrices of two modules exchanged. */
export function swapped(adapter: Adapter, one: string, other: string): Adapter {
  const source = (key: string) =>
    key.includes(one) ? key.replace(one, other) : key.replace(other, one);
  return copyOf(adapter, (_, key) => adapter.tensors.get(source(key))!.data.slice());
}

function datum(prompt: Int32Array, rollout: SampledRollout, advantage: number): Datum {
  const text = Int32Array.of(...prompt, ...rollout.tokens);
  const start = prompt.length - 1;
  const logprobs = new Float32Array(text.length - 1);
  logprobs.set(rollout.behaviorLogprobs, start);
  return {
    tokens: text.slice(0, -1),
    targetTokens: text.slice(1),
    inputs: { logprobs, advantages: new Float32Array(text.length - 1).fill(advantage, start) },
  };
}
