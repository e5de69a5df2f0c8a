import { z } from 'zod';
import { UserError } from '../base/errors.js';
import { withoutMark } from '../base/read-json.js';
import { complaintsOf, describe, type Complaint } from './config-complaints.js';
import { readRotary, ropeKeys, type RotaryEmbedding } from './rotary.js';

/** The architecture of a decoder-only transformer of the Qwen3, Qwen2 or Llama family. */
export interface ModelConfig {
  readonly family: 'qwen3' | 'qwen2' | 'llama';
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number; // divides numHeads: grouped-query attention
  readonly headDim: number;
  readonly rmsNormEps: number;
  readonly rotary: RotaryEmbedding;
  readonly maxPositions: number;
  readonly hasTiedHead: boolean; // the output head is the embedding
  readonly hasQueryKeyNorm: boolean; // RMSNorm on each head's query and key (Qwen3)
  /** Linear maps with a bias: Qwen2's query, key and value, and others if config.json says so. */
  readonly biases: {
    readonly queryKeyValue: boolean;
    readonly output: boolean;
    readonly mlp: boolean;
  };
  readonly eosTokenIds: readonly number[];
}

const size = z.int().positive();
const otherModel = 'choose a dense model of the Qwen3, Qwen2 or Llama family';

const HuggingFaceConfig = z.object({
  model_type: z.enum(['qwen3', 'qwen2', 'llama'], `only qwen3, qwen2 and llama run; ${otherModel}`),
  architectures: z
    .array(z.string().regex(/ForCausalLM$/, 'only models that predict the next token run'))
    .nullish(),
  quantization_config: z
    .null('quantized weights do not run; take the model in bf16, fp16 or fp32')
    .optional(),
  vocab_size: size,
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  num_key_value_heads: size.nullish(),
  head_dim: size.nullish(),
  hidden_act: z.literal('silu', `only silu runs; ${otherModel}`).default('silu'),
  rms_norm_eps: z.number().positive(),
  max_position_embeddings: size,
  tie_word_embeddings: z.boolean().default(false),
  attention_bias: z.boolean().default(false),
  mlp_bias: z.boolean().default(false),
  use_sliding_window: z.boolean().nullish(),
  sliding_window: size.nullish(),
  max_window_layers: z.int().nonnegative().nullish(),
  layer_types: z.array(z.string()).nullish(),
  eos_token_id: z.union([z.int().nonnegative(), z.array(z.int().nonnegative())]).nullish(),
  ...ropeKeys,
});
type HuggingFaceConfig = z.infer<typeof HuggingFaceConfig>;

/**
 * Reads the text of a Hugging Face `config.json`.
 *
 * @throws {UserError} naming each key that is missing, wrong or not supported, and its value.
 */
export function parseModelConfig(text: string, path: string): ModelConfig {
  let json: unknown;
  try {
    json = JSON.parse(withoutMark(text));
  } catch (cause) {
    throw new UserError(`${path} is not JSON; is this a Hugging Face model directory?`, { cause });
  }
  const refuse = (complaints: readonly Complaint[]): never => {
    // Keys of another architecture have other names and values, which would bury the reason.
    const family = complaints.filter(({ key }) => key === 'model_type');
    const lines = (family.length > 0 ? family : complaints).map(
      (complaint) => `\n  - ${describe(complaint)}`,
    );
    throw new UserError(`${path} describes a model that cannot be run:${lines.join('')}`);
  };
  const parsed = HuggingFaceConfig.safeParse(json);
  if (!parsed.success) return refuse(complaintsOf(parsed.error, json));
  const hf = parsed.data;

  const complaints: Complaint[] = [];
  const { rotary, maxPositions } = readRotary(hf, complaints);
  const numKvHeads = hf.num_key_value_heads ?? hf.num_attention_heads;
  if (hf.num_attention_heads % numKvHeads !== 0) {
    const remedy = `it must divide num_attention_heads, ${hf.num_attention_heads}`;
    complaints.push({ key: 'num_key_value_heads', value: numKvHeads, remedy });
  }
  const headDim = hf.head_dim ?? defaultHeadDim(hf);
  if (!Number.isInteger(headDim) || headDim % 2 !== 0) {
    const remedy = 'the rotary embedding needs an even number';
    complaints.push({ key: 'head_dim', value: headDim, remedy });
  }
  complaints.push(...slidingWindowComplaints(hf, maxPositions));
  if (complaints.length > 0) return refuse(complaints);

  return {
    family: hf.model_type,
    vocabSize: hf.vocab_size,
    hiddenSize: hf.hidden_size,
    intermediateSize: hf.intermediate_size,
    numLayers: hf.num_hidden_layers,
    numHeads: hf.num_attention_heads,
    numKvHeads,
    headDim,
    rmsNormEps: hf.rms_norm_eps,
    rotary,
    maxPositions,
    hasTiedHead: hf.tie_word_embeddings,
    hasQueryKeyNorm: hf.model_type === 'qwen3',
    biases: {
      queryKeyValue: hf.model_type === 'qwen2' || hf.attention_bias,
      output: hf.model_type !== 'qwen2' && hf.attention_bias,
      mlp: hf.model_type === 'llama' && hf.mlp_bias,
    },
    eosTokenIds: [hf.eos_token_id ?? []].flat(),
  };
}

function defaultHeadDim({ model_type, hidden_size, num_attention_heads }: HuggingFaceConfig) {
  return model_type === 'qwen3' ? 128 : hidden_size / num_attention_heads;
}

/** A sliding window is harmless if no layer uses it, or if it covers all positions. */
function slidingWindowComplaints(hf: HuggingFaceConfig, maxPositions: number): Complaint[] {
  const remedy = `only full attention runs; ${otherModel} without sliding windows`;
  const strange = hf.layer_types?.find(
    (type) => type !== 'full_attention' && type !== 'sliding_attention',
  );
  if (strange !== undefined) return [{ key: 'layer_types', value: strange, remedy }];

  const windowed = hf.layer_types?.includes('sliding_attention');
  const isWindowed = windowed ?? (hf.max_window_layers ?? 28) < hf.num_hidden_layers;
  const window = hf.sliding_window ?? 4096;
  if (windowed !== true && hf.use_sliding_window !== true) return [];
  if (!isWindowed || window >= maxPositions) return [];
  return windowed === true
    ? [{ key: 'layer_types', value: 'sliding_attention', remedy }]
    : [{ key: 'use_sliding_window', value: true, remedy }];
}
