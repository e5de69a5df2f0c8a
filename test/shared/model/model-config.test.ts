import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { UserError } from '../../../shared/base/errors.js';
import { parseModelConfig } from '../../../shared/model/model-config.js';

type Keys = Readonly<Record<string, unknown>>;

/** Configurations as their makers publish them, without keys that say nothing about the model. */
const published = {
  'Qwen3-0.6B': {
    architectures: ['Qwen3ForCausalLM'],
    model_type: 'qwen3',
    attention_bias: false,
    eos_token_id: 151645,
    head_dim: 128,
    hidden_act: 'silu',
    hidden_size: 1024,
    intermediate_size: 3072,
    max_position_embeddings: 40960,
    max_window_layers: 28,
    num_attention_heads: 16,
    num_hidden_layers: 28,
    num_key_value_heads: 8,
    rms_norm_eps: 1e-6,
    rope_scaling: null,
    rope_theta: 1_000_000,
    sliding_window: null,
    tie_word_embeddings: true,
    torch_dtype: 'bfloat16',
    use_sliding_window: false,
    vocab_size: 151936,
  },
  'Qwen2.5-0.5B': {
    architectures: ['Qwen2ForCausalLM'],
    model_type: 'qwen2',
    eos_token_id: 151643,
    hidden_act: 'silu',
    hidden_size: 896,
    intermediate_size: 4864,
    max_position_embeddings: 32768,
    max_window_layers: 24,
    num_attention_heads: 14,
    num_hidden_layers: 24,
    num_key_value_heads: 2,
    rms_norm_eps: 1e-6,
    rope_theta: 1_000_000,
    sliding_window: 32768,
    tie_word_embeddings: true,
    use_mrope: false,
    use_sliding_window: false,
    vocab_size: 151936,
  },
  'Llama-3.2-1B': {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    attention_bias: false,
    eos_token_id: [128001, 128008, 128009],
    head_dim: 64,
    hidden_act: 'silu',
    hidden_size: 2048,
    intermediate_size: 8192,
    max_position_embeddings: 131072,
    mlp_bias: false,
    num_attention_heads: 32,
    num_hidden_layers: 16,
    num_key_value_heads: 8,
    pretraining_tp: 1,
    rms_norm_eps: 1e-5,
    rope_scaling: {
      factor: 32,
      high_freq_factor: 4,
      low_freq_factor: 1,
      original_max_position_embeddings: 8192,
      rope_type: 'llama3',
    },
    rope_theta: 500_000,
    tie_word_embeddings: true,
    vocab_size: 128256,
  },
} satisfies Record<string, Keys>;

const parse = (name: keyof typeof published, changes: Keys = {}) =>
  parseModelConfig(JSON.stringify({ ...published[name], ...changes }), 'm/config.json');
const qwen3 = (changes: Keys) => parse('Qwen3-0.6B', changes);
const qwen2 = (changes: Keys) => parse('Qwen2.5-0.5B', changes);
const llama = (changes: Keys) => parse('Llama-3.2-1B', changes);

describe('config.json', () => {
  it('config.json describes a Qwen3 model', () => {
    const config = qwen3({});
    assert.equal(config.family, 'qwen3');
    assert.equal(config.numKvHeads, 8);
    assert.equal(config.hasTiedHead, true);
    assert.equal(config.hasQueryKeyNorm, true);
    assert.deepEqual(config.biases, { queryKeyValue: false, output: false, mlp: false });
    assert.deepEqual(config.rotary, { theta: 1_000_000, scaling: { type: 'none' } });
    assert.deepEqual(config.eosTokenIds, [151645]);
  });

  it('config.json describes a Qwen2 model, whose query, key and value have biases', () => {
    const config = qwen2({});
    assert.equal(config.family, 'qwen2');
    assert.equal(config.headDim, 64);
    assert.equal(config.hasQueryKeyNorm, false);
    assert.deepEqual(config.biases, { queryKeyValue: true, output: false, mlp: false });
  });

  it('config.json describes a Llama model and its stop tokens', () => {
    const config = llama({});
    assert.equal(config.family, 'llama');
    assert.equal(config.headDim, 64);
    assert.equal(config.maxPositions, 131072);
    assert.deepEqual(config.rotary.scaling, {
      type: 'llama3',
      factor: 32,
      originalMaxPositions: 8192,
      lowFrequencyFactor: 1,
      highFrequencyFactor: 4,
    });
    assert.deepEqual(config.eosTokenIds, [128001, 128008, 128009]);
  });

  it('config.json may request biases in all maps of attention, and of the MLP in Llama', () => {
    const all = { queryKeyValue: true, output: true };
    assert.deepEqual(qwen3({ attention_bias: true }).biases, { ...all, mlp: false });
    const biased = llama({ attention_bias: true, mlp_bias: true });
    assert.deepEqual(biased.biases, { ...all, mlp: true });
  });

  it('config.json has the defaults of transformers for missing keys', () => {
    assert.equal(qwen3({ head_dim: undefined }).headDim, 128);
    const old = { head_dim: undefined, num_key_value_heads: undefined, rope_theta: undefined };
    const config = llama({ ...old, rope_scaling: undefined });
    assert.equal(config.headDim, 64);
    assert.equal(config.numKvHeads, 32);
    assert.equal(config.rotary.theta, 10_000);
  });

  it('config.json may have theta and scaling where transformers 5 writes them', () => {
    const rope = { rope_theta: 500_000, rope_type: 'linear', factor: 2 };
    const { rotary } = qwen3({ rope_theta: undefined, rope_parameters: rope });
    assert.deepEqual(rotary, { theta: 500_000, scaling: { type: 'linear', factor: 2 } });
  });

  it('config.json gives rope_scaling precedence over rope_parameters', () => {
    const { rotary } = qwen3({
      rope_scaling: { type: 'linear', factor: 4 },
      rope_parameters: { rope_theta: 7, rope_type: 'linear', factor: 2 },
    });
    assert.deepEqual(rotary, { theta: 1_000_000, scaling: { type: 'linear', factor: 4 } });
  });

  it('config.json with yarn extends the positions as Qwen documents, max_position_embeddings unchanged', () => {
    const scaling = { type: 'yarn', factor: 4, original_max_position_embeddings: 32768 };
    const config = qwen2({ rope_scaling: scaling });
    assert.equal(config.maxPositions, 131072);
    assert.deepEqual(config.rotary.scaling, {
      type: 'yarn',
      factor: 4,
      originalMaxPositions: 32768,
      betaFast: 32,
      betaSlow: 1,
      isTruncated: true,
      attentionFactor: undefined,
      mscale: undefined,
      mscaleAllDim: undefined,
    });
  });

  it('config.json with linear scaling extends the positions; dynamic scaling, which starts after them, does not', () => {
    assert.equal(qwen2({ rope_scaling: { type: 'linear', factor: 4 } }).maxPositions, 131072);
    const dynamic = qwen2({ rope_scaling: { type: 'dynamic', factor: 4 } });
    assert.equal(dynamic.maxPositions, 32768);
    assert.deepEqual(dynamic.rotary.scaling, { type: 'none' });
  });

  it('config.json may name sliding windows that no layer has, or that are as wide as the model is long', () => {
    const harmless: Keys[] = [
      { use_sliding_window: false, sliding_window: 64, max_window_layers: 0 },
      { use_sliding_window: true, sliding_window: 64, max_window_layers: 24 },
      { use_sliding_window: true, sliding_window: 32768, max_window_layers: 0 },
      { layer_types: Array.from({ length: 24 }, () => 'full_attention') },
    ];
    for (const keys of harmless) assert.equal(qwen2(keys).numLayers, 24);
  });

  const refusals: [parse: (changes: Keys) => unknown, changes: Keys, complaint: RegExp][] = [
    [
      qwen3,
      { model_type: 'gpt2' },
      /model_type is "gpt2": only qwen3, qwen2 and llama run; choose/,
    ],
    [qwen3, { model_type: 'qwen3_moe' }, /model_type is "qwen3_moe": .* choose a dense model/],
    [
      llama,
      { architectures: ['LlamaForSequenceClassification'] },
      /architectures\.0 is "LlamaForSequenceClassification": only models that predict/,
    ],
    [
      qwen2,
      { quantization_config: { quant_method: 'gptq', bits: 4 } },
      /quantization_config is {"quant_method":"gptq","bits":4}: quantized weights .* take the model/,
    ],
    [qwen3, { hidden_size: null }, /hidden_size is null: .*expected number/],
    [qwen3, { num_hidden_layers: 2.5 }, /num_hidden_layers is 2\.5: .*int/],
    [qwen3, { hidden_act: 'gelu' }, /hidden_act is "gelu": only silu runs; choose/],
    [qwen3, { num_key_value_heads: 3 }, /num_key_value_heads is 3: it must divide num_att.*, 16/],
    [qwen3, { head_dim: 7 }, /head_dim is 7: .* even number/],
    [llama, { attention_bias: 'yes' }, /attention_bias is "yes": .* boolean/],
    [
      llama,
      { partial_rotary_factor: 0.5 },
      /partial_rotary_factor is 0\.5: only rotation of whole heads/,
    ],
    [
      qwen3,
      { rope_scaling: { rope_type: 'longrope', short_factor: [1], long_factor: [2] } },
      /rope_scaling\.rope_type is "longrope": default, linear, .* run; choose/,
    ],
    [
      qwen2,
      { rope_scaling: { type: 'mrope', mrope_section: [16, 24, 24] } },
      /rope_scaling\.type is "mrope"/,
    ],
    [
      qwen3,
      { rope_parameters: { full_attention: { rope_type: 'default', rope_theta: 1e6 } } },
      /rope_parameters\.full_attention is {"rope_type":"default","rope_theta":1000000}: /,
    ],
    [
      qwen3,
      { rope_scaling: { rope_type: 'yarn', factor: 4, beta_quick: 3 } },
      /rope_scaling\.beta_quick is 3: not known here; remove it/,
    ],
    [qwen3, { rope_scaling: { rope_type: 'linear' } }, /rope_scaling\.factor is missing/],
    [qwen3, { rope_scaling: { rope_type: 'linear', factor: 0.5 } }, /rope_scaling\.factor is 0\.5/],
    [
      llama,
      { rope_scaling: { rope_type: 'llama3', factor: 8, low_freq_factor: 4, high_freq_factor: 1 } },
      /rope_scaling\.high_freq_factor is 1: it must be greater than low_freq_factor/,
    ],
    [
      qwen2,
      { use_sliding_window: true, sliding_window: 4096, max_window_layers: 12 },
      /use_sliding_window is true: only full attention runs; choose .* without sliding windows/,
    ],
    [
      qwen3,
      { layer_types: ['full_attention', 'sliding_attention'], sliding_window: 1024 },
      /layer_types is "sliding_attention": only full attention runs/,
    ],
    [qwen3, { layer_types: ['linear_attention'] }, /layer_types is "linear_attention"/],
  ];
  for (const [read, changes, complaint] of refusals) {
    it(`config.json is refused by its key and value: ${JSON.stringify(changes)}`, () => {
      assert.throws(
        () => read(changes),
        (error) => {
          assert.ok(error instanceof UserError);
          assert.match(error.message, /^m\/config\.json describes a model that cannot be run:\n/);
          assert.match(error.message, complaint);
          return true;
        },
      );
    });
  }

  it('config.json is refused with all wrong keys at once', () => {
    assert.throws(() => qwen3({ hidden_act: 'gelu', vocab_size: 0 }), /vocab_size[^]*hidden_act/);
    assert.throws(() => qwen3({ head_dim: 7, num_key_value_heads: 3 }), /num_key[^]*head_dim/);
  });

  it('config.json is refused for its family alone, whose keys have other names', () => {
    const gpt2 = { model_type: 'gpt2', hidden_act: 'gelu', vocab_size: undefined };
    assert.throws(() => qwen3(gpt2), {
      message: /cannot be run:\n {2}- model_type is "gpt2": [^\n]*$/,
    });
  });

  it('config.json is refused if it is not JSON, or not an object', () => {
    const read = (text: string) => () => parseModelConfig(text, 'm/config.json');
    assert.throws(read('{'), /m\/config\.json is not JSON/);
    assert.throws(read('\ufeff[]'), /the file is \[\]/); // after a byte order mark
    assert.throws(read('[]'), /the file is \[\]: .*expected object/);
  });
});
