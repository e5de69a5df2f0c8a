import { z } from 'zod';
import { UserError } from '../errors.js';

/** What a decoder-only transformer of the Qwen3, Qwen2 or Llama family is made of. */
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
  readonly ropeTheta: number;
  readonly maxPositions: number;
  readonly hasTiedHead: boolean; // the output head is the embedding
  readonly hasQueryKeyNorm: boolean; // RMSNorm on each head's query and key (Qwen3)
  readonly hasAttentionBias: boolean; // bias on query, key and value (Qwen2)
  readonly eosTokenIds: readonly number[];
}

const size = z.int().positive();
const RopeParameters = z.looseObject({
  rope_theta: z.number().positive().optional(),
  rope_type: z.string().optional(),
  type: z.string().optional(),
});

const HuggingFaceConfig = z.object({
  model_type: z.enum(['qwen3', 'qwen2', 'llama'], {
    error: (issue) => `${JSON.stringify(issue.input)} is not supported; qwen3, qwen2 and llama are`,
  }),
  vocab_size: size,
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  num_key_value_heads: size.optional(),
  head_dim: size.nullish(),
  hidden_act: z.literal('silu').default('silu'),
  rms_norm_eps: z.number().positive(),
  rope_theta: z.number().positive().optional(),
  rope_parameters: RopeParameters.nullish(), // where transformers 5 keeps theta and scaling
  rope_scaling: RopeParameters.nullish(),
  max_position_embeddings: size,
  tie_word_embeddings: z.boolean().default(false),
  attention_bias: z.literal(false).optional(),
  mlp_bias: z.literal(false).optional(),
  use_sliding_window: z.literal(false).optional(),
  eos_token_id: z.union([z.int().nonnegative(), z.array(z.int().nonnegative())]).nullish(),
});

/**
 * Reads the text of a Hugging Face `config.json`.
 *
 * @throws {UserError} naming each key that is missing, wrong or not supported, and its value.
 */
export function parseModelConfig(text: string, path: string): ModelConfig {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new UserError(`${path} is not JSON; is this a Hugging Face model directory?`, { cause });
  }
  const parsed = HuggingFaceConfig.safeParse(json);
  if (!parsed.success) {
    const keys = parsed.error.issues.map(
      (issue) => `  - ${issue.path.join('.')}: ${issue.message}`,
    );
    throw new UserError(`${path} describes a model that cannot be run:\n${keys.join('\n')}`);
  }
  const hf = parsed.data;
  const refuse = (key: string, value: unknown, remedy: string): never => {
    throw new UserError(`${path}: ${key} is ${JSON.stringify(value)}; ${remedy}`);
  };

  const scaling = hf.rope_scaling ?? hf.rope_parameters;
  const ropeType = scaling?.rope_type ?? scaling?.type ?? 'default';
  if (ropeType !== 'default') {
    refuse('rope_scaling.rope_type', ropeType, 'only the unscaled rotary embedding is supported');
  }
  const numKvHeads = hf.num_key_value_heads ?? hf.num_attention_heads;
  if (hf.num_attention_heads % numKvHeads !== 0) {
    refuse('num_key_value_heads', numKvHeads, `it must divide ${hf.num_attention_heads} heads`);
  }
  const headDim = hf.head_dim ?? hf.hidden_size / hf.num_attention_heads;
  if (!Number.isInteger(headDim) || headDim % 2 !== 0) {
    refuse('head_dim', headDim, 'the rotary embedding needs an even number');
  }
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
    ropeTheta: hf.rope_theta ?? hf.rope_parameters?.rope_theta ?? 10_000,
    maxPositions: hf.max_position_embeddings,
    hasTiedHead: hf.tie_word_embeddings,
    hasQueryKeyNorm: hf.model_type === 'qwen3',
    hasAttentionBias: hf.model_type === 'qwen2',
    eosTokenIds: [hf.eos_token_id ?? []].flat(),
  };
}
