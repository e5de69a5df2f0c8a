import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createAdapter, type Adapter } from '../../shared/model/lora.js';
import type { ModelConfig } from '../../shared/model/model-config.js';
import { createRandom } from '../../shared/base/random.js';
import { characterVocabSize } from '../../shared/model/character-tokenizer.js';
import { readModelDirectory, type ModelDirectory } from '../../shared/model/model-directory.js';
import {
  qwen3ConfigText,
  randomWeights,
  writeModelDirectory,
} from '../../shared/model/model-writer.js';
import type { ModelSizes } from '../../shared/model/model-writer.js';

/** Grouped-query attention, two layers, a few thousand weights. */
export const tinySizes: ModelSizes = {
  vocabSize: characterVocabSize,
  hiddenSize: 16,
  intermediateSize: 24,
  numLayers: 2,
  numHeads: 4,
  numKvHeads: 2,
  headDim: 8,
  maxPositions: 64,
  hasTiedHead: true,
};

/** A random Qwen3 directory with the character tokenizer; it is removed with the scope. */
export async function tinyModel(
  seed = 0,
  sizes: Partial<ModelSizes> = {},
): Promise<ModelDirectory & AsyncDisposable> {
  const path = await mkdtemp(join(tmpdir(), 'offbeat-model-'));
  const configText = qwen3ConfigText({ ...tinySizes, ...sizes });
  // Ten times the usual deviation, so that attention and logits are far from uniform.
  const weights = randomWeights(configText, seed);
  for (const [name, { data }] of weights) {
    if (!name.endsWith('norm.weight')) data.forEach((value, i) => (data[i] = value * 10));
  }
  await writeModelDirectory(path, configText, weights);
  return {
    ...(await readModelDirectory(path)),
    [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }),
  };
}

/** An adapter of rank 3 whose B is not zero: it changes the policy, and A has a gradient. */
export function warmAdapter(config: ModelConfig, seed: number): Adapter {
  const random = createRandom(`warm ${seed}`);
  const adapter = createAdapter(config, { rank: 3, alpha: 6, seed, attn: true, mlp: true });
  for (const { data } of adapter.tensors.values()) {
    data.forEach((value, i) => (data[i] = value + (random.next() - 0.5) * 0.2));
  }
  return adapter;
}
