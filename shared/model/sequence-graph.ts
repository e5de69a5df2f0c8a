import { causalAttention, causalBias, sequencePositions } from './causal-attention.js';
import type { Graph, Value } from './graph/graph.js';
import { div, gatherElements, logSoftmax, reshape } from './graph/operators.js';
import { loraInputs, type AdaptedModules, type LoraValues } from './lora-graph.js';
import type { ModelConfig } from './model-config.js';
import { head, transformer } from './transformer.js';
import type { WeightSource } from './weight-source.js';

/** The layout of sequences in the rows of a batch. */
type Layout =
  | 'plain' // one sequence a row, from its start
  | 'packed'; // several per row, separated by `attention_bias`

/** The dimensions of a batch of padded sequences: `rows` = batch · time. */
const dims = { batch: 'batch', time: 'time', rows: 'rows' };

/**
 * Appends the whole model over padded sequences. Inputs: `tokens` [batch, time] and LoRA's matrices;
 * in the packed layout also `positions` [batch, time] and `attention_bias` [batch, 1, 1, time, time].
 *
 * @returns `logits` [rows, vocabSize] of the next token.
 */
export function sequenceLogits(
  graph: Graph,
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
  layout: Layout = 'plain',
): { logits: Value; lora: LoraValues | undefined } {
  const tokens = graph.input('tokens', 'int64', [dims.batch, dims.time]);
  const lora = loraInputs(graph, config, modules);
  const weights = source(graph);
  const { positions, bias } =
    layout === 'plain'
      ? { positions: sequencePositions(graph, dims), bias: causalBias(graph, dims.time) }
      : {
          positions: graph.input('positions', 'int64', [dims.batch, dims.time]),
          bias: graph.input('attention_bias', 'float32', [dims.batch, 1, 1, dims.time, dims.time]),
        };
  const attention = causalAttention(graph, config, dims, bias);

  const hidden = transformer(graph, config, {
    weights,
    lora,
    tokens: reshape(graph, tokens, [dims.rows]),
    positions,
    dims,
    attend: (_layer, query, key, value) => attention(query, key, value),
  });
  return { logits: head(config, weights, hidden), lora };
}

/**
 * Appends the logprob of each target t given tokens 0…t. Inputs: those of `sequenceLogits`, `targets`
 * [batch, time] and `temperature` scalar.
 *
 * @returns `logprobs` [batch, time], natural log, of softmax(logits / temperature); `all` [rows, vocabSize], of all tokens.
 */
export function sequenceLogprobs(
  graph: Graph,
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
  layout: Layout = 'plain',
): { logprobs: Value; all: Value; lora: LoraValues | undefined } {
  const { logits, lora } = sequenceLogits(graph, config, source, modules, layout);
  const targets = graph.input('targets', 'int64', [dims.batch, dims.time]);
  const temperature = graph.input('temperature', 'float32', []);
  const column = reshape(graph, targets, [dims.rows, 1]);
  const all = logSoftmax(graph, div(graph, logits, temperature));
  const chosen = gatherElements(graph, all, column);
  return { logprobs: reshape(graph, chosen, [dims.batch, dims.time]), all, lora };
}
