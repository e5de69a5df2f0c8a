import { availableParallelism } from 'node:os';
import { ParallelTrainer } from '../../local-backend/parallel-trainer.js';
import { embeddedDataset, generateProblems } from '../../shared/tasks/countdown/generator.js';
import { renderPrompt, styles } from '../../shared/tasks/countdown/prompts.js';
import { Decoder } from '../../shared/model/decoder.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import { createAdapter } from '../../shared/model/lora.js';
import {
  checkModelDirectory,
  embeddedModelPath,
  readModelDirectory,
} from '../../shared/model/model-directory.js';
import { loadTokenizer } from '../../shared/model/tokenizer.js';
import { promptTokens } from '../../shared/tasks/prompt.js';
import type { Datum } from '../../shared/rl/datum.js';
import type { Figure } from './main.js';
import { medianSeconds } from './stopwatch.js';

const groupSize = 16;
const lora = { rank: 32, alpha: 64, attn: true, mlp: true };

/** The embedded model with an adapter of rank 32, and the prompts of the first problems. */
async function setting(groups: number) {
  const directory = await readModelDirectory(embeddedModelPath);
  const tokenizer = await loadTokenizer(directory);
  const decoder = Decoder.of(directory, { threads: 1 });
  const adapter = createAdapter(directory.config, { ...lora, seed: 0 });
  const prompts = generateProblems(embeddedDataset)
    .test.slice(0, groups)
    .map(({ problem }) => promptTokens(renderPrompt(styles.compact.en, problem), tokenizer));
  const request = (prompt: Int32Array, count: number, seed: number): GroupRequest => ({
    prompt,
    count,
    seed,
    temperature: 1,
    maxTokens: 20,
    stopTokenIds: tokenizer.eosTokenIds,
  });
  const sample = async (requests: readonly GroupRequest[]) =>
    (await decoder.sampleGroups(requests, () => ({ version: 0, adapter }))).map(
      (rollouts) => rollouts!,
    );
  return { directory, adapter, prompts, request, sample };
}

/** Measures how fast one actor samples, with the embedded model or that of a directory. */
export async function benchDecoding(): Promise<Figure[]> {
  const { BENCH_MODEL_DIR: path } = process.env;
  if (path !== undefined) return await benchPublished(path);
  const { prompts, request, sample } = await setting(16);
  const figures: Figure[] = [];
  for (const [count, sideBySide] of [
    [1, 1],
    [groupSize, 1],
    [groupSize, 4],
    [groupSize, 8],
    [groupSize, 16],
  ] as const) {
    let tokens = 0;
    const seconds = await medianSeconds(5, async (run) => {
      tokens = 0;
      for (let first = 0; first < prompts.length; first += sideBySide) {
        const groups = await sample(
          prompts
            .slice(first, first + sideBySide)
            .map((prompt, i) => request(prompt, count, run * 1_000 + first + i)),
        );
        for (const { tokens: sampled } of groups.flat()) tokens += sampled.length;
      }
    });
    const what = `tokens sampled, ${sideBySide} groups of ${count} side by side, 1 thread`;
    figures.push({ what, value: tokens / seconds, unit: 'tokens/s' });
  }
  return figures;
}

/**
 * Measures processor time and memory of one thread that samples with a published model, an adapter of rank 32 and a
 * prompt of 64 tokens.
 */
async function benchPublished(path: string): Promise<Figure[]> {
  const spent = (since?: NodeJS.CpuUsage) => {
    const { user, system } = process.cpuUsage(since);
    return (user + system) / 1e6;
  };
  const directory = await checkModelDirectory(path);
  const { vocabSize } = directory.config;
  const decoder = Decoder.of(directory, { threads: 1 });
  const adapter = createAdapter(directory.config, { ...lora, seed: 0 });
  const sample = async (count: number, maxTokens: number) => {
    const prompt = Int32Array.from({ length: 64 }, (_, i) => (37 * i + 11) % vocabSize);
    const request = { prompt, count, seed: 1, temperature: 1, maxTokens, stopTokenIds: [] };
    const start = process.cpuUsage();
    await decoder.sampleGroup(request, () => ({ version: 0, adapter }));
    return spent(start);
  };
  const unit = 'tokens per second of processor time';
  const figures: Figure[] = [{ what: 'to load', value: await sample(1, 1), unit: 'processor s' }];
  for (const count of [1, 16, 64]) {
    const seconds: number[] = [];
    for (let run = 0; run < 3; run++)
      seconds.push(((await sample(count, 10)) - (await sample(count, 2))) / 8);
    figures.push({
      what: `${count} at once`,
      value: count / Math.min(...seconds),
      unit,
    });
  }
  const { maxRSS } = process.resourceUsage();
  return [...figures, { what: 'resident memory, at most', value: maxRSS / 1_024, unit: 'MiB' }];
}

/** Measures how fast the local backend computes gradients: groups in one request against shuffled rollouts. */
export async function benchTraining(): Promise<Figure[]> {
  const { directory, adapter, prompts, request, sample } = await setting(16);
  const threads = availableParallelism();
  await using trainer = await ParallelTrainer.load(directory, threads);
  const groups: Datum[][] = [];
  for (const [seed, prompt] of prompts.entries()) {
    const [rollouts] = await sample([request(prompt, groupSize, seed)]);
    groups.push(rollouts!.map((rollout) => datum(prompt, rollout)));
  }
  const together = groups.flat();
  const apart = Array.from({ length: groupSize }, (_, i) =>
    groups.map((group) => group[i]!),
  ).flat();
  const rate = async (data: Datum[]) =>
    data.length /
    (await medianSeconds(5, () => trainer.forwardBackward(adapter, data, 'cispo', {}, new Map())));
  return [
    {
      what: `rollouts trained, groups together, ${threads} threads`,
      value: await rate(together),
      unit: 'rollouts/s',
    },
    {
      what: `rollouts trained, no two of a group side by side`,
      value: await rate(apart),
      unit: 'rollouts/s',
    },
  ];
}

/** A sampled answer with advantages that differ between its tokens. */
export function datum(prompt: Int32Array, { tokens, behaviorLogprobs }: SampledRollout): Datum {
  const text = Int32Array.of(...prompt, ...tokens);
  const before = new Array<number>(prompt.length - 1).fill(0);
  return {
    tokens: text.subarray(0, -1),
    targetTokens: text.subarray(1),
    inputs: {
      logprobs: Float32Array.of(...before, ...behaviorLogprobs),
      advantages: Float32Array.of(...before, ...behaviorLogprobs.map((_, i) => (i % 2) - 0.4)),
    },
  };
}
