import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createRandom } from '../base/random.js';
import { characterEosTokenId, characterTokenizerFiles } from './character-tokenizer.js';
import { parseModelConfig } from './model-config.js';
import { parameterShapes } from './parameters.js';
import { encodeSafetensors, type Tensor } from './safetensors.js';

/** The sizes of a Qwen3-architecture model that this project creates. */
export interface ModelSizes {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly maxPositions: number;
  readonly hasTiedHead: boolean; // the output head is the embedding
}

/** The `config.json` of a Qwen3 model, float32. */
export function qwen3ConfigText(sizes: ModelSizes): string {
  const config = {
    architectures: ['Qwen3ForCausalLM'],
    model_type: 'qwen3',
    vocab_size: sizes.vocabSize,
    hidden_size: sizes.hiddenSize,
    intermediate_size: sizes.intermediateSize,
    num_hidden_layers: sizes.numLayers,
    num_attention_heads: sizes.numHeads,
    num_key_value_heads: sizes.numKvHeads,
    head_dim: sizes.headDim,
    hidden_act: 'silu',
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    max_position_embeddings: sizes.maxPositions,
    tie_word_embeddings: sizes.hasTiedHead,
    attention_bias: false,
    use_sliding_window: false,
    eos_token_id: characterEosTokenId,
    dtype: 'float32',
  };
  return `${JSON.stringify(config, undefined, 2)}\n`;
}

/**
 * Random weights: norms 1, biases 0, all others normal with deviation 0.02, divided by sqrt(2 · layers) for
 * those that write into the residual stream.
 *
 * Source: GPT-2's initialization (Radford et al. 2019).
 */
export function randomWeights(configText: string, seed: number): Map<string, Tensor> {
  const config = parseModelConfig(configText, 'config.json');
  const random = createRandom(`weights ${seed}`);
  const normal = () =>
    Math.sqrt(-2 * Math.log(1 - random.next())) * Math.cos(2 * Math.PI * random.next());
  const weights = new Map<string, Tensor>();
  for (const [name, dims] of parameterShapes(config)) {
    const length = dims.reduce((product, dim) => product * dim, 1);
    const isResidual = /(o_proj|down_proj)\.weight$/.test(name);
    const deviation = isResidual ? 0.02 / Math.sqrt(2 * config.numLayers) : 0.02;
    const draw = () =>
      name.endsWith('norm.weight') ? 1 : name.endsWith('.bias') ? 0 : normal() * deviation;
    weights.set(name, { dims, data: Float32Array.from({ length }, draw) });
  }
  return weights;
}

/** Writes a complete Hugging Face directory with the character tokenizer. */
export async function writeModelDirectory(
  path: string,
  configText: string,
  weights: ReadonlyMap<string, Tensor>,
): Promise<void> {
  await mkdir(path, { recursive: true });
  const files = { 'config.json': configText, ...characterTokenizerFiles() };
  for (const [name, text] of Object.entries(files)) await writeFile(join(path, name), text);
  await writeFile(join(path, 'model.safetensors'), encodeSafetensors(weights, { format: 'pt' }));
}
