import { causalAttention, causalBias, sequencePositions } from './causal-attention.js';
import type { Graph, Value } from './graph/graph.js';
import { div, gatherElements, logSoftmax, reshape } from './graph/operators.js';
import { loraInputs, type AdaptedModules, type LoraValues } from './lora-graph.js';
import type { ModelConfig } from './model-config.js';
import type { Tensor } from './safetensors.js';
import { head, transformer } from './transformer.js';

/** How a graph gets at the model's weights. */
export type WeightSource = (graph: Graph) => (name: string) => Value;

/** The weights as constants: what LoRA and sampling need. */
export function frozen(weights: ReadonlyMap<string, Tensor>): WeightSource {
  return (graph) => {
    const values = new Map<string, Value>();
    return (name) => {
      const known = values.get(name);
      if (known !== undefined) return known;
      const { dims, data } = weights.get(name)!;
      const value = graph.weight(name, dims, data);
      values.set(name, value);
      return value;
    };
  };
}

/** The weights as inputs: what pre-training needs. */
export function trainable(weights: ReadonlyMap<string, Tensor>): WeightSource {
  return (graph) => {
    const values = new Map(
      [...weights].map(([name, { dims }]) => [name, graph.input(name, 'float32', dims)]),
    );
    return (name) => values.get(name)!;
  };
}

/** How the sequences lie in the rows of a batch. */
export type Layout =
  | 'plain' // one sequence a row, from its start
  | 'packed'; // several, which see what `attention_bias` shows them

/**
 * Appends the whole model over padded sequences: given tokens 0…t, how likely is target t?
 * Inputs: `tokens` and `targets` [batch, time], `temperature` scalar, and LoRA's matrices; in the
 * packed layout also `positions` [batch, time] and `attention_bias` [batch, 1, 1, time, time].
 *
 * @returns `logprobs` [batch, time], natural log, of softmax(logits / temperature).
 */
export function sequenceLogprobs(
  graph: Graph,
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
  layout: Layout = 'plain',
): { logprobs: Value; lora: LoraValues | undefined } {
  const dims = { batch: 'batch', time: 'time', rows: 'rows' };
  const tokens = graph.input('tokens', 'int64', [dims.batch, dims.time]);
  const targets = graph.input('targets', 'int64', [dims.batch, dims.time]);
  const temperature = graph.input('temperature', 'float32', []);
  const lora = loraInputs(graph, config, modules);
  const weight = source(graph);
  const { positions, bias } =
    layout === 'plain'
      ? { positions: sequencePositions(graph, dims), bias: causalBias(graph, dims.time) }
      : {
          positions: graph.input('positions', 'int64', [dims.batch, dims.time]),
          bias: graph.input('attention_bias', 'float32', [dims.batch, 1, 1, dims.time, dims.time]),
        };
  const attention = causalAttention(graph, config, dims, bias);

  const hidden = transformer(graph, config, {
    weight,
    lora,
    tokens: reshape(graph, tokens, [dims.rows]),
    positions: reshape(graph, positions, [dims.rows, 1]),
    dims,
    attend: (_layer, query, key, value) => attention(query, key, value),
  });
  const logits = div(graph, head(graph, config, weight, hidden), temperature);
  const column = reshape(graph, targets, [dims.rows, 1]);
  const chosen = gatherElements(graph, logSoftmax(graph, logits), column);
  return { logprobs: reshape(graph, chosen, [dims.batch, dims.time]), lora };
}
