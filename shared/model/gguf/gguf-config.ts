import { z } from 'zod';
import { UserError } from '../../base/errors.js';
import type { GgufMetadata } from './gguf-file.js';

/** Name of the class in transformers, by the architecture's name in GGUF, which is its model type too. */
const classes = {
  llama: 'LlamaForCausalLM',
  qwen2: 'Qwen2ForCausalLM',
  qwen3: 'Qwen3ForCausalLM',
} as const;

/** The families that can be read. */
type GgufArchitecture = keyof typeof classes;

const size = z.int().positive();
const none = (what: string) => z.literal(0, `${what} cannot be run`).optional();

/** The keys that begin with the architecture's name. Strict, because an ignored setting makes every answer wrong. */
const Settings = z.strictObject({
  context_length: size,
  embedding_length: size,
  block_count: size,
  feed_forward_length: size,
  vocab_size: size.optional(),
  'attention.head_count': size,
  'attention.head_count_kv': size.optional(),
  'attention.key_length': size.optional(),
  'attention.value_length': size.optional(),
  'attention.layer_norm_rms_epsilon': z.number().positive(),
  'attention.causal': z.literal(true, 'only causal attention can be run').optional(),
  'rope.freq_base': z.number().positive().default(10_000),
  'rope.dimension_count': size.optional(),
  'rope.scale_linear': z.number().min(1).optional(),
  'rope.scaling.type': z.enum(['none', 'linear', 'yarn'], 'cannot be run').optional(),
  'rope.scaling.factor': z.number().min(1).optional(),
  'rope.scaling.original_context_length': size.optional(),
  'rope.scaling.finetuned': z.boolean().optional(),
  expert_count: none('a mixture of experts'),
  expert_used_count: none('a mixture of experts'),
  tensor_data_layout: z.string().optional(),
});
type Settings = z.infer<typeof Settings>;

const SpecialTokens = z.object({
  'tokenizer.ggml.bos_token_id': z.int().optional(),
  'tokenizer.ggml.eos_token_id': z.int().optional(),
  'tokenizer.ggml.eot_token_id': z.int().optional(), // ends a turn, where that is another token
  'tokenizer.ggml.padding_token_id': z.int().optional(),
});

/** What config.json needs to know about the tensors. */
export interface TensorFacts {
  readonly vocabSize: number; // rows of the embedding
  readonly has: (name: string) => boolean;
  /** [headDim / 2] By how much each pair of the rotary embedding is slowed down, if the file says so. */
  readonly ropeFactors: Float32Array | undefined;
}

/** The architecture. @throws {UserError} if it cannot be run. */
export function architectureOf(metadata: GgufMetadata, path: string): GgufArchitecture {
  const name = metadata['general.architecture'];
  if (typeof name === 'string' && name in classes) return name as GgufArchitecture;
  throw new UserError(
    `${path} has the architecture ${String(name)}; only ${Object.keys(classes).join(', ')} can be run: ` +
      'choose a dense model of these families',
  );
}

/**
 * The contents of config.json and generation_config.json.
 *
 * @param dtype the type of the weights in PyTorch's words.
 * @throws {UserError} naming each key of the file that is missing, wrong or not supported.
 */
export function configsOf(
  metadata: GgufMetadata,
  facts: TensorFacts,
  dtype: 'bfloat16' | 'float32',
  path: string,
): { readonly config: Record<string, unknown>; readonly generation: Record<string, unknown> } {
  const architecture = architectureOf(metadata, path);
  const settings = settingsOf(metadata, architecture, path);
  const heads = settings['attention.head_count'];
  const headDim = settings['attention.key_length'] ?? settings.embedding_length / heads;
  for (const key of ['attention.value_length', 'rope.dimension_count'] as const) {
    if ((settings[key] ?? headDim) === headDim) continue;
    throw new UserError(
      `${path}: ${architecture}.${key} is ${settings[key]}, but heads have ${headDim} numbers; such a model cannot be run`,
    );
  }
  const ids = specialIdsOf(metadata);
  const generation = {
    ...(ids.bos !== undefined && { bos_token_id: ids.bos }),
    ...(ids.eos.length > 0 && { eos_token_id: ids.eos.length === 1 ? ids.eos[0] : ids.eos }),
    ...(ids.pad !== undefined && { pad_token_id: ids.pad }),
  };
  const scaling = ropeScaling(settings, facts.ropeFactors, headDim, path);
  const config = {
    architectures: [classes[architecture]],
    model_type: architecture,
    vocab_size: facts.vocabSize,
    hidden_size: settings.embedding_length,
    intermediate_size: settings.feed_forward_length,
    num_hidden_layers: settings.block_count,
    num_attention_heads: heads,
    num_key_value_heads: settings['attention.head_count_kv'] ?? heads,
    head_dim: headDim,
    hidden_act: 'silu',
    rms_norm_eps: decimal(settings['attention.layer_norm_rms_epsilon']),
    rope_theta: decimal(settings['rope.freq_base']),
    ...(scaling !== undefined && { rope_scaling: scaling }),
    max_position_embeddings: settings.context_length,
    tie_word_embeddings: !facts.has('output.weight'),
    ...(architecture !== 'qwen2' && { attention_bias: facts.has('blk.0.attn_q.bias') }),
    ...(architecture === 'llama' && { mlp_bias: facts.has('blk.0.ffn_gate.bias') }),
    ...generation,
    dtype,
  };
  return { config, generation };
}

function settingsOf(metadata: GgufMetadata, architecture: string, path: string): Settings {
  const prefix = `${architecture}.`;
  const own = Object.entries(metadata).filter(([key]) => key.startsWith(prefix));
  const parsed = Settings.safeParse(
    Object.fromEntries(own.map(([key, value]) => [key.slice(prefix.length), value])),
  );
  if (parsed.success) return parsed.data;
  const lines = parsed.error.issues.flatMap((issue) => {
    const keys = issue.code === 'unrecognized_keys' ? issue.keys : [issue.path.join('.')];
    const why = issue.code === 'unrecognized_keys' ? 'not known here' : issue.message;
    return keys.map((key) => {
      const value = metadata[`${prefix}${key}`];
      const found = value === undefined ? 'missing' : JSON.stringify(value).slice(0, 80);
      return `\n  - ${prefix}${key} is ${found}: ${why}`;
    });
  });
  throw new UserError(`${path} describes a model that cannot be run:${lines.join('')}`);
}

function specialIdsOf(metadata: GgufMetadata) {
  const parsed = SpecialTokens.parse(metadata);
  const ends = [parsed['tokenizer.ggml.eos_token_id'], parsed['tokenizer.ggml.eot_token_id']];
  return {
    bos: parsed['tokenizer.ggml.bos_token_id'],
    eos: [...new Set(ends.filter((id) => id !== undefined))],
    pad: parsed['tokenizer.ggml.padding_token_id'],
  };
}

/** The shortest decimal of a float32: 1e-5 for 0.000009999999747378752. */
function decimal(value: number): number {
  for (let digits = 1; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === Math.fround(value)) return short;
  }
  return value;
}

function ropeScaling(
  settings: Settings,
  factors: Float32Array | undefined,
  headDim: number,
  path: string,
): Record<string, unknown> | undefined {
  if (factors !== undefined) {
    return llama3Scaling(factors, decimal(settings['rope.freq_base']), headDim, path);
  }
  const factor = settings['rope.scaling.factor'] ?? settings['rope.scale_linear'] ?? 1;
  const original = settings['rope.scaling.original_context_length'];
  if (settings['rope.scaling.type'] === 'yarn') {
    return {
      rope_type: 'yarn',
      factor,
      ...(original !== undefined && { original_max_position_embeddings: original }),
    };
  }
  return settings['rope.scaling.type'] === 'none' || factor === 1
    ? undefined
    : { rope_type: 'linear', factor };
}

/**
 * Llama 3's settings. GGUF has only the factors that follow from them; every published model has these four but for the
 * largest factor, and they must give the same factors.
 */
function llama3Scaling(factors: Float32Array, theta: number, headDim: number, path: string) {
  const low = 1;
  const high = 4;
  const original = 8_192;
  const factor = Math.max(...factors);
  const isLlama3 = factors.every((found, i) => {
    const waves = (original * theta ** ((-2 * i) / headDim)) / (2 * Math.PI);
    const speed = Math.min(1, Math.max(0, (waves - low) / (high - low)));
    return Math.abs(1 / ((1 - speed) / factor + speed) - found) <= 1e-4 * found;
  });
  if (!isLlama3 || factors.length !== headDim / 2) {
    throw new UserError(
      `${path}: rope_freqs.weight has other factors than Llama 3.1's scaling gives; such a model cannot be run from GGUF: ` +
        'get its safetensors from the hub',
    );
  }
  return {
    rope_type: 'llama3',
    factor,
    low_freq_factor: low,
    high_freq_factor: high,
    original_max_position_embeddings: original,
  };
}
