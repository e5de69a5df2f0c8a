import { causalAttention, causalBias, sequencePositions } from './causal-attention.js';
import { Graph, type Value } from './graph/graph.js';
import {
  add,
  concat,
  gather,
  matmul,
  mul,
  reshape,
  slice,
  softmax,
  transpose,
} from './graph/operators.js';
import { loraInputs, type AdaptedModules } from './lora-graph.js';
import type { ModelConfig } from './model-config.js';
import { sampleToken } from './sampling-graph.js';
import type { WeightSource } from './sequence-graph.js';
import { head, transformer } from './transformer.js';

/*
 * Sampling a group takes two graphs. `prefillGraph` reads the prompt once and draws every rollout's
 * first token. `decodeGraph` advances all rollouts by one token: each attends to the prompt, which
 * they share, and to what it has written itself.
 *
 * Keys are cached transposed, so that appending a token is one Concat and attending one MatMul:
 *   prompt_key.<layer>   [1, kvHeads, D, prompt]    prompt_value.<layer> [1, kvHeads, prompt, D]
 *   past_key.<layer>     [batch, kvHeads, D, past]  past_value.<layer>   [batch, kvHeads, past, D]
 */

/** Inputs: `tokens` [1, prompt], sampling's and LoRA's. Outputs: sampling's and the prompt's cache. */
export function prefillGraph(
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
): Graph {
  const graph = new Graph();
  const { numKvHeads, headDim, vocabSize } = config;
  const dims = { batch: 'one', time: 'prompt', rows: 'prompt' };
  const tokens = graph.input('tokens', 'int64', [dims.batch, dims.time]);
  const lora = loraInputs(graph, config, modules);
  const weight = source(graph);
  const attention = causalAttention(graph, config, dims, causalBias(graph, dims.time));

  const hidden = transformer(graph, config, {
    weight,
    lora,
    tokens: reshape(graph, tokens, [dims.rows]),
    positions: sequencePositions(graph, dims),
    dims,
    attend: (layer, query, key, value) => {
      const split = (x: Value, perm: number[]) =>
        transpose(graph, reshape(graph, x, ['one', 'prompt', numKvHeads, headDim]), perm);
      graph.output(`prompt_key.${layer}`, split(key, [0, 2, 3, 1]));
      graph.output(`prompt_value.${layer}`, split(value, [0, 2, 1, 3]));
      return attention(query, key, value);
    },
  });
  const end = graph.length('prompt');
  const last = slice(graph, hidden, 0, [add(graph, end, graph.ints(-1)), end, 1]);
  sampleToken(graph, head(graph, config, weight, last), vocabSize);
  return graph;
}

/**
 * Inputs: `rows` [batch], which rollouts of the step before go on; `tokens` [batch], their newest
 * tokens; `position` [1, 1], where these stand; the caches, sampling's and LoRA's inputs.
 * Outputs: sampling's, and `key.<layer>`, `value.<layer>`: the past with this token appended.
 */
export function decodeGraph(
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
): Graph {
  const graph = new Graph();
  const { numHeads, numKvHeads, headDim, vocabSize } = config;
  const dims = { batch: 'batch', time: 1, rows: 'batch' };
  const tokens = graph.input('tokens', 'int64', ['batch']);
  const rows = graph.input('rows', 'int64', ['batch']);
  const position = graph.input('position', 'int64', [1, 1]);
  const lora = loraInputs(graph, config, modules);
  const weight = source(graph);
  const scale = graph.float(1 / Math.sqrt(headDim));
  const perGroup = numHeads / numKvHeads;

  const attend = (layer: number, query: Value, key: Value, value: Value): Value => {
    const promptKey = graph.input(`prompt_key.${layer}`, 'float32', [
      1,
      numKvHeads,
      headDim,
      'prompt',
    ]);
    const promptValue = graph.input(`prompt_value.${layer}`, 'float32', [
      1,
      numKvHeads,
      'prompt',
      headDim,
    ]);
    const pastKey = graph.input(`past_key.${layer}`, 'float32', [
      'before',
      numKvHeads,
      headDim,
      'past',
    ]);
    const pastValue = graph.input(`past_value.${layer}`, 'float32', [
      'before',
      numKvHeads,
      'past',
      headDim,
    ]);

    const newKey = reshape(graph, key, ['batch', numKvHeads, headDim, 1]);
    const newValue = reshape(graph, value, ['batch', numKvHeads, 1, headDim]);
    const keys = concat(graph, [gather(graph, pastKey, rows), newKey], 3, 'own');
    const values = concat(graph, [gather(graph, pastValue, rows), newValue], 2, 'own');
    graph.output(`key.${layer}`, keys);
    graph.output(`value.${layer}`, values);

    const grouped = reshape(graph, query, ['batch', numKvHeads, perGroup, headDim]);
    const q = mul(graph, grouped, scale);
    const toPrompt = matmul(graph, q, promptKey);
    const scores = concat(graph, [toPrompt, matmul(graph, q, keys)], 3, 'all');
    const shares = softmax(graph, scores); // [batch, kvHeads, perGroup, prompt + own]
    const split = graph.length('prompt');
    const onPrompt = slice(graph, shares, 3, [graph.ints(0), split, 'prompt']);
    const onOwn = slice(graph, shares, 3, [split, graph.ints(Number.MAX_SAFE_INTEGER), 'own']);
    const context = add(graph, matmul(graph, onPrompt, promptValue), matmul(graph, onOwn, values));
    return reshape(graph, context, ['batch', numHeads * headDim]);
  };

  const positions = graph.apply('Expand', [position, graph.shape(['batch', 1])], {
    dims: ['batch', 1],
    type: 'int64',
  });
  const hidden = transformer(graph, config, { weight, lora, tokens, positions, dims, attend });
  sampleToken(graph, head(graph, config, weight, hidden), vocabSize);
  return graph;
}
