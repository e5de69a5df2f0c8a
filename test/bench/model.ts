import { availableParallelism } from 'node:os';
import { embeddedDataset } from '../../shared/countdown/embedded-dataset.js';
import { generateProblems } from '../../shared/countdown/generator.js';
import { renderPrompt } from '../../shared/countdown/prompts.js';
import { Decoder, type SampledRollout } from '../../shared/model/decoder.js';
import { createAdapter } from '../../shared/model/lora.js';
import { embeddedModelPath, readModelDirectory } from '../../shared/model/model-directory.js';
import { loadTokenizer } from '../../shared/model/tokenizer.js';
import { Trainer, type TrainingDatum } from '../../shared/model/trainer.js';
import type { Figure } from './main.js';
import { medianSeconds } from './stopwatch.js';

const groupSize = 16;

/** The embedded model with an adapter of rank 32, and the prompts of the first problems. */
async function setting(groups: number) {
  const directory = await readModelDirectory(embeddedModelPath);
  const tokenizer = await loadTokenizer(directory);
  const decoder = await Decoder.load(directory, { threads: 1 });
  const adapter = createAdapter(directory.config, {
    rank: 32,
    alpha: 64,
    seed: 0,
    attn: true,
    mlp: true,
  });
  const prompts = generateProblems(embeddedDataset)
    .slice(0, groups)
    .map(({ problem }) => tokenizer.encode(renderPrompt('compact', problem)));
  const sample = (prompt: Int32Array, count: number, seed: number) =>
    decoder.sampleGroup(
      {
        prompt,
        count,
        seed,
        temperature: 1,
        maxTokens: 20,
        stopTokenIds: tokenizer.eosTokenIds,
      },
      () => ({ version: 0, adapter }),
    );
  return { directory, adapter, prompts, sample };
}

/** How fast one actor samples. */
export async function benchDecoding(): Promise<Figure[]> {
  const { prompts, sample } = await setting(20);
  const figures: Figure[] = [];
  for (const count of [1, groupSize, 64]) {
    let tokens = 0;
    const seconds = await medianSeconds(5, async (run) => {
      tokens = 0;
      for (const [i, prompt] of prompts.entries()) {
        const rollouts = await sample(prompt, count, run * 1_000 + i);
        tokens += rollouts.reduce((sum, rollout) => sum + rollout.tokens.length, 0);
      }
    });
    const what = `tokens sampled, groups of ${count}, 1 thread`;
    figures.push({ what, value: tokens / seconds, unit: 'tokens/s' });
  }
  return figures;
}

/** How fast the local backend computes gradients: groups in one request against rollouts shuffled. */
export async function benchTraining(): Promise<Figure[]> {
  const { directory, adapter, prompts, sample } = await setting(16);
  const threads = availableParallelism();
  const trainer = await Trainer.load(directory, { threads });
  const groups: TrainingDatum[][] = [];
  for (const [seed, prompt] of prompts.entries()) {
    groups.push((await sample(prompt, groupSize, seed)).map((rollout) => datum(prompt, rollout)));
  }
  const together = groups.flat();
  const apart = Array.from({ length: groupSize }, (_, i) =>
    groups.map((group) => group[i]!),
  ).flat();
  const rate = async (data: TrainingDatum[]) =>
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

function datum(prompt: Int32Array, { tokens, behaviorLogprobs }: SampledRollout): TrainingDatum {
  const text = Int32Array.of(...prompt, ...tokens);
  const before = new Array<number>(prompt.length - 1).fill(0);
  return {
    tokens: text.subarray(0, -1),
    targetTokens: text.subarray(1),
    logprobs: Float32Array.of(...before, ...behaviorLogprobs),
    advantages: Float32Array.of(...before, ...behaviorLogprobs.map((_, i) => (i % 2) - 0.4)),
  };
}
