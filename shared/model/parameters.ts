import type { ModelConfig } from './model-config.js';

/** Every weight of the model under its Hugging Face name, with its shape. */
export function parameterShapes(config: ModelConfig): Map<string, readonly number[]> {
  const { hiddenSize, vocabSize, headDim } = config;
  const shapes = new Map<string, readonly number[]>([
    ['model.embed_tokens.weight', [vocabSize, hiddenSize]],
  ]);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const at = `model.layers.${layer}`;
    shapes.set(`${at}.input_layernorm.weight`, [hiddenSize]);
    for (const { module, out, in: width, hasBias } of linearModules(config)) {
      shapes.set(`${at}.${module}.weight`, [out, width]);
      if (hasBias) shapes.set(`${at}.${module}.bias`, [out]);
    }
    if (config.hasQueryKeyNorm) {
      shapes.set(`${at}.self_attn.q_norm.weight`, [headDim]);
      shapes.set(`${at}.self_attn.k_norm.weight`, [headDim]);
    }
    shapes.set(`${at}.post_attention_layernorm.weight`, [hiddenSize]);
  }
  shapes.set('model.norm.weight', [hiddenSize]);
  if (!config.hasTiedHead) shapes.set('lm_head.weight', [vocabSize, hiddenSize]);
  return shapes;
}

/** A linear map inside each layer: the modules that LoRA adapts. */
interface LinearModule {
  readonly module: string; // as in `model.layers.0.<module>.weight`
  readonly group: 'attn' | 'mlp';
  readonly out: number;
  readonly in: number;
  readonly hasBias: boolean;
}

/** The seven linear maps of a layer, in the order in which a token passes them. */
export function linearModules(config: ModelConfig): readonly LinearModule[] {
  const { hiddenSize: hidden, intermediateSize: inner, headDim, biases } = config;
  const queryWidth = config.numHeads * headDim;
  const keyWidth = config.numKvHeads * headDim;
  const attention = (name: string, out: number, width: number): LinearModule => ({
    module: `self_attn.${name}`,
    group: 'attn',
    out,
    in: width,
    hasBias: name === 'o_proj' ? biases.output : biases.queryKeyValue,
  });
  const mlp = (name: string, out: number, width: number): LinearModule => ({
    module: `mlp.${name}`,
    group: 'mlp',
    out,
    in: width,
    hasBias: biases.mlp,
  });
  return [
    attention('q_proj', queryWidth, hidden),
    attention('k_proj', keyWidth, hidden),
    attention('v_proj', keyWidth, hidden),
    attention('o_proj', hidden, queryWidth),
    mlp('gate_proj', inner, hidden),
    mlp('up_proj', inner, hidden),
    mlp('down_proj', hidden, inner),
  ];
}

/**
 * Whether the parts of a model are so small that a call or a thread costs more than the arithmetic that it is for.
 * Measured with the embedded model of 0.8 million weights and one of 135 million.
 */
export function isSmall(config: ModelConfig): boolean {
  let weights = 0;
  for (const dims of parameterShapes(config).values()) weights += dims.reduce((a, b) => a * b, 1);
  return weights <= 16e6;
}

/**
 * The threads that a session of the model should use. Dividing the products of a small model costs more than it
 * saves (with the embedded model, 2 threads sample 0.7 times as fast as 1), so it is given 1; more cores are used
 * by more sessions.
 */
export function sessionThreads(config: ModelConfig, threads: number): number {
  return isSmall(config) ? 1 : threads;
}

/**
 * The rollouts that are sampled together at most. Each has a cache and logits of its own. Beyond 64 those of a large
 * model save no time any more: SmolLM2-135M draws 370 tokens a second of processor time with 64 and 353 with 256, which
 * need 0.6 GB more. With a small model their memory does not matter.
 */
export function rowsAtOnce(config: ModelConfig): number {
  return isSmall(config) ? Infinity : 64;
}
