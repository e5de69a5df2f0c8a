import type { Graph, Value } from './graph/graph.js';
import { add, mul, reshape, rmsNorm, rotate, sigmoid } from './graph/operators.js';
import { lowRankUpdate, type LoraValues } from './lora-graph.js';
import type { ModelConfig } from './model-config.js';
import { linearModules } from './parameters.js';
import { rotaryWaves } from './rotary.js';
import type { TokenDims } from './causal-attention.js';
import type { Weights } from './weight-source.js';

interface TransformerInputs {
  readonly weights: Weights;
  readonly lora: LoraValues | undefined;
  readonly tokens: Value; // [rows] int64
  readonly positions: Value; // [batch, time] int64, of each token in its own sequence
  readonly dims: TokenDims;
  /**
   * The attention of one layer, which differs between graphs.
   *
   * @param query [batch, time, heads · D], and key and value [batch, time, kvHeads · D]
   * @returns [rows, heads · D]
   */
  readonly attend: (layer: number, query: Value, key: Value, value: Value) => Value;
}

/**
 * Appends a decoder-only transformer to the graph: RMSNorm, grouped-query attention with rotary
 * embedding, SwiGLU, residual connections.
 *
 * Source: the Qwen3, Qwen2 and Llama architectures as Hugging Face transformers defines them.
 *
 * @returns the last hidden state after the final norm, [rows, hiddenSize].
 */
export function transformer(graph: Graph, config: ModelConfig, inputs: TransformerInputs): Value {
  const { weights, lora, tokens, positions, dims, attend } = inputs;
  const { headDim, numHeads, numKvHeads, rmsNormEps } = config;
  const { cos, sin } = rotaryWaves(graph, config, positions, dims);
  const biased = linearModules(config).filter(({ hasBias }) => hasBias);

  const linear = (x: Value, layer: number, module: string): Value => {
    const name = `model.layers.${layer}.${module}`;
    const hasBias = biased.some((other) => other.module === module);
    const base = weights.product(
      x,
      `${name}.weight`,
      hasBias ? weights.value(`${name}.bias`) : undefined,
    );
    return lowRankUpdate(graph, lora, `layers.${layer}.${module}`, x, base);
  };

  const normalizeHeads = (x: Value, name: string, heads: number): Value => {
    if (!config.hasQueryKeyNorm) return x;
    const perHead = reshape(graph, x, [dims.rows, heads, headDim]);
    const normalized = rmsNorm(graph, perHead, weights.value(name), rmsNormEps);
    return reshape(graph, normalized, [dims.rows, heads * headDim]);
  };

  const rotated = (x: Value, heads: number): Value =>
    rotate(graph, reshape(graph, x, [dims.batch, dims.time, heads * headDim]), { cos, sin, heads });

  let x = weights.rows('model.embed_tokens.weight', tokens);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const at = `model.layers.${layer}`;

    const h = rmsNorm(graph, x, weights.value(`${at}.input_layernorm.weight`), rmsNormEps);
    const q = linear(h, layer, 'self_attn.q_proj');
    const k = linear(h, layer, 'self_attn.k_proj');
    const v = linear(h, layer, 'self_attn.v_proj');
    const context = attend(
      layer,
      rotated(normalizeHeads(q, `${at}.self_attn.q_norm.weight`, numHeads), numHeads),
      rotated(normalizeHeads(k, `${at}.self_attn.k_norm.weight`, numKvHeads), numKvHeads),
      reshape(graph, v, [dims.batch, dims.time, numKvHeads * headDim]),
    );
    x = add(graph, x, linear(context, layer, 'self_attn.o_proj'));

    const m = rmsNorm(graph, x, weights.value(`${at}.post_attention_layernorm.weight`), rmsNormEps);
    const gate = linear(m, layer, 'mlp.gate_proj');
    const silu = mul(graph, gate, sigmoid(graph, gate));
    const gated = mul(graph, silu, linear(m, layer, 'mlp.up_proj'));
    x = add(graph, x, linear(gated, layer, 'mlp.down_proj'));
  }
  return rmsNorm(graph, x, weights.value('model.norm.weight'), rmsNormEps);
}

/** The output head: logits [rows, vocabSize] of hidden states [rows, hiddenSize]. */
export function head(config: ModelConfig, weights: Weights, hidden: Value): Value {
  return weights.product(
    hidden,
    config.hasTiedHead ? 'model.embed_tokens.weight' : 'lm_head.weight',
  );
}
