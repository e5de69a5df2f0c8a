import type { ModelConfig } from './model-config.js';

/** Every weight of the model under its Hugging Face name, with its shape. */
export function parameterShapes(config: ModelConfig): Map<string, readonly number[]> {
  const { hiddenSize, vocabSize, headDim } = config;
  const queryWidth = config.numHeads * headDim;
  const keyWidth = config.numKvHeads * headDim;
  const shapes = new Map<string, readonly number[]>([
    ['model.embed_tokens.weight', [vocabSize, hiddenSize]],
  ]);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const at = `model.layers.${layer}`;
    shapes.set(`${at}.input_layernorm.weight`, [hiddenSize]);
    for (const { module, out, in: width } of linearModules(config)) {
      shapes.set(`${at}.${module}.weight`, [out, width]);
    }
    if (config.hasAttentionBias) {
      shapes.set(`${at}.self_attn.q_proj.bias`, [queryWidth]);
      shapes.set(`${at}.self_attn.k_proj.bias`, [keyWidth]);
      shapes.set(`${at}.self_attn.v_proj.bias`, [keyWidth]);
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
export interface LinearModule {
  readonly module: string; // as in `model.layers.0.<module>.weight`
  readonly group: 'attn' | 'mlp';
  readonly out: number;
  readonly in: number;
}

/** The seven linear maps of a layer, in the order in which a token passes them. */
export function linearModules(config: ModelConfig): readonly LinearModule[] {
  const { hiddenSize, intermediateSize, headDim } = config;
  const queryWidth = config.numHeads * headDim;
  const keyWidth = config.numKvHeads * headDim;
  return [
    { module: 'self_attn.q_proj', group: 'attn', out: queryWidth, in: hiddenSize },
    { module: 'self_attn.k_proj', group: 'attn', out: keyWidth, in: hiddenSize },
    { module: 'self_attn.v_proj', group: 'attn', out: keyWidth, in: hiddenSize },
    { module: 'self_attn.o_proj', group: 'attn', out: hiddenSize, in: queryWidth },
    { module: 'mlp.gate_proj', group: 'mlp', out: intermediateSize, in: hiddenSize },
    { module: 'mlp.up_proj', group: 'mlp', out: intermediateSize, in: hiddenSize },
    { module: 'mlp.down_proj', group: 'mlp', out: hiddenSize, in: intermediateSize },
  ];
}
