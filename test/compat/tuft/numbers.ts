import { copyFile } from 'node:fs/promises';
import { join } from 'node:path';
import { prepareMinibatches, sendMinibatch } from '../../../learner/step/minibatch-pass.js';
import { startLocalBackend } from '../../../local-backend/local-backend.js';
import { pretrainedProblems } from '../../../shared/tasks/countdown/generator.js';
import { decodeAdapter } from '../../../shared/model/lora.js';
import { embeddedModelPath, readModelDirectory } from '../../../shared/model/model-directory.js';
import type { Tensor } from '../../../shared/model/safetensors.js';
import { loadTokenizer } from '../../../shared/model/tokenizer.js';
import { solvedProblems } from '../../../tools/pretrain/corpus.js';
import { createRandom, type Random } from '../../../shared/base/random.js';
import type { TinkerClient } from '../../../shared/tinker/client.js';
import type { TrainingRun } from '../../../shared/tinker/training-run.js';
import type { ForwardBackwardResult } from '../../../shared/tinker/types.js';
import type { LossName } from '../../../shared/rl/losses.js';
import type { RunConfig } from '../../../shared/run/run-config.js';
import type { ScoredGroup } from '../../../shared/wire/scored-group.js';
import { silent } from '../../support/log.js';
import { rollout, rolloutGroup, runConfig, scoredGroup } from '../../support/messages.js';
import { atLeast, atMost, type SuiteContext } from '../suite.js';
import {
  adam,
  baseModel,
  connect,
  datum,
  distance,
  lora,
  losses,
  lossNames,
  step,
} from './scene.js';
import { apiKey, TuftServer } from './tuft-server.js';

/** One of the two servers that must agree. */
interface Side {
  readonly client: TinkerClient;
  readonly run: TrainingRun;
  readonly base: TrainingRun; // never trained
  readonly statePath: string;
}

const steps = 10;

/**
 * TuFT and the local backend on the shipped model, with the same adapter and the same data: groups of
 * rollouts of different lengths, as the learner sends them, so that both pad, pack and batch.
 */
export async function tuftNumbers(context: SuiteContext): Promise<void> {
  await using server = await TuftServer.start(context, [
    ...[`--model-dir=${embeddedModelPath}`, `--model-name=${baseModel}`],
    '--micro-batch-size=16',
  ]);
  const checkpointDir = join(context.folder, 'local');
  await using backend = await startLocalBackend({
    ...{ host: '127.0.0.1', port: 0, apiKey, checkpointDir, threads: 1, log: silent },
    ...{ modelDir: embeddedModelPath, modelName: baseModel },
  });
  await using ofTuft = await connect(context, server.url);
  await using ofLocal = await connect(context, backend.url);
  const tuft = await prepared(ofTuft);
  const local = await prepared(ofLocal);
  await copyFile(
    join(server.checkpointDir, tuft.run.modelId, 'start', adapterFile),
    join(checkpointDir, local.run.modelId, 'weights/start', adapterFile),
  );
  const sides = [tuft, local];
  await reload(sides);

  const random = createRandom('the numbers agree');
  const groups = Array.from({ length: 3 }, () => group(random));
  for (const temperature of [1, 0.7]) {
    const label = `logprobs at temperature ${temperature}`;
    const apart = await differences(sides, await answers(18), temperature);
    context.report(atMost(`${label}, difference`, apart.largest, 1e-4));
    // Very improbable tokens have logprobs near -50, for which a float32 has no more digits.
    const absurd = groups.flatMap(({ group: { promptTokens, rollouts } }) =>
      rollouts.map(({ tokens }) => [...promptTokens, ...tokens]),
    );
    const { relative } = await differences(sides, absurd, temperature);
    context.report(atMost(`${label}, of random characters, relative`, relative, 1e-5));
  }

  const objectives = lossNames.map((loss): [string, RunConfig] => [loss, settingsOf(loss)]);
  for (const [loss, settings] of [...objectives, ['corrected', corrected] as const]) {
    const [left, right] = await Promise.all(sides.map((side) => pass(side, settings, groups)));
    const relative = Math.abs(left! - right!) / Math.abs(right!);
    context.report(atMost(`${loss}: loss, relative difference`, relative, 1e-4));

    await reload(sides);
    const start = await adapterOf(local, `${loss}-start`);
    for (const side of sides) {
      for (let i = 0; i < steps; i++) {
        await pass(side, settings, groups);
        await side.run.optimStep({ ...adam, weightDecay: 0.01, gradClipNorm: 1 });
      }
    }
    const [ours, theirs] = await Promise.all(sides.map((side) => adapterOf(side, `${loss}-end`)));
    const after = `${loss}: after ${steps} AdamW steps,`;
    context.report(atLeast(`${after} cosine of the adapters`, cosine(ours!, theirs!), 0.9999));
    // The adapters share their start, so the learned difference is the stricter comparison.
    const learned = cosine(ours!, theirs!, start);
    context.report(atLeast(`${after} cosine of what was learned`, learned, 0.9999));
    await reload(sides);
  }
}

const adapterFile = 'adapter/adapter_model.safetensors';

/** A saved run whose B is no longer zero. */
async function prepared(client: TinkerClient): Promise<Side> {
  const run = await client.createLoraModel({ ...lora, seed: 1 });
  for (let i = 0; i < 3; i++) await step(run);
  const base = await client.createLoraModel({ ...lora, seed: 2 });
  return { client, run, base, statePath: await run.saveState('start') };
}

/** Resets both to their start, with their gradients used up. */
async function reload(sides: readonly Side[]): Promise<void> {
  for (const { run, statePath } of sides) {
    await run.optimStep({ ...adam, learningRate: 0 });
    await run.loadState(statePath, { optimizer: false });
  }
}

function settingsOf(loss: LossName): RunConfig {
  return runConfig({
    loss: { name: loss, config: losses[loss] },
    sampling: { temperature: 0.9, maxTokens: 48 },
  });
}

/** Decoupled PPO with a mask and a KL penalty: every pass that a correction or a term needs. */
const corrected: RunConfig = {
  ...settingsOf('ppo'),
  correction: {
    weights: { kind: 'token', cap: 2 },
    mask: { kind: 'icepop', low: 0, high: 5 },
  },
  extraTerms: { ...runConfig().extraTerms, klPenalty: 0.1 },
};

/** `count` solved problems, as the shipped model has learned them. */
async function answers(count: number): Promise<number[][]> {
  const tokenizer = await loadTokenizer(await readModelDirectory(embeddedModelPath));
  const examples = solvedProblems(tokenizer, pretrainedProblems, '1');
  return Array.from({ length: count }, () => {
    const { tokens, targets } = examples.next().value;
    return [tokens[0]!, ...targets];
  });
}

/** The largest difference of the sides' logprobs: in nats, relative to their size if above 1. */
async function differences(
  sides: readonly Side[],
  sequences: readonly (readonly number[])[],
  temperature: number,
): Promise<{ largest: number; relative: number }> {
  const data = sequences.map((tokens) => datum(tokens, 'cross_entropy'));
  const [left, right] = await Promise.all(
    sides.map(({ run }) => run.forward(data, 'cross_entropy', { temperature })),
  );
  const bySize = (result: ForwardBackwardResult) =>
    result.logprobs.map((values, i) =>
      values.map((value, j) => value / Math.max(1, Math.abs(right!.logprobs[i]![j]!))),
    );
  return {
    largest: distance(left!.logprobs, right!.logprobs),
    relative: distance(bySize(left!), bySize(right!)),
  };
}

/** Sends these groups as the learner does. @returns the loss. */
async function pass(
  { run, base }: Side,
  settings: RunConfig,
  groups: readonly ScoredGroup[],
): Promise<number> {
  const isNearBase = settings.extraTerms.klPenalty > 0;
  const backends = { run, base: isNearBase ? base : undefined };
  const law = { version: 0, maxStepsOffPolicy: Infinity, rewinds: [] };
  const [prepared] = await prepareMinibatches(backends, settings, [groups], law);
  return (await sendMinibatch(run, settings, prepared!)).lossSum;
}

/** A prompt, and six answers of 2 to 40 tokens, half of them right. */
function group(random: Random): ScoredGroup {
  const tokens = (length: number) =>
    Int32Array.from({ length }, () => 2 + Math.floor(random.next() * 20));
  const rollouts = Array.from({ length: 6 }, () => {
    const length = 2 + Math.floor(random.next() * 39);
    const behaviorLogprobs = Float32Array.from({ length }, () => -0.05 - 4 * random.next());
    return rollout(length, { tokens: tokens(length), behaviorLogprobs });
  });
  const scored = scoredGroup({ group: rolloutGroup({ promptTokens: tokens(9), rollouts }) });
  const [score] = scored.scores;
  const scores = rollouts.map((_, i) => ({
    ...score!,
    reward: i % 2,
    exactReward: String(i % 2),
  }));
  return { ...scored, scores };
}

async function adapterOf(
  { client, run }: Side,
  name: string,
): Promise<ReadonlyMap<string, Tensor>> {
  const downloaded = await client.downloadAdapter(await run.saveWeightsForSampler(name));
  return decodeAdapter(downloaded.adapter, downloaded).tensors;
}

/** All weights minus their start, as one vector. */
function cosine(
  left: ReadonlyMap<string, Tensor>,
  right: ReadonlyMap<string, Tensor>,
  start?: ReadonlyMap<string, Tensor>,
): number {
  let [product, ofLeft, ofRight] = [0, 0, 0];
  for (const [key, { data }] of left) {
    const other = right.get(key)!.data;
    const origin = start?.get(key)?.data;
    data.forEach((value, i) => {
      const a = value - (origin?.[i] ?? 0);
      const b = other[i]! - (origin?.[i] ?? 0);
      product += a * b;
      ofLeft += a * a;
      ofRight += b * b;
    });
  }
  return product / Math.sqrt(ofLeft * ofRight);
}
