import { causalAttention, causalBias, sequencePositions } from './causal-attention.js';
import { Graph, type Dim, type Value } from './graph/graph.js';
import {
  add,
  concat,
  gather,
  matmul,
  mul,
  reshape,
  slice,
  stack,
  softmax,
  transpose,
} from './graph/operators.js';
import { stackedLoraInputs, type AdaptedModules } from './lora-graph.js';
import type { ModelConfig } from './model-config.js';
import { sampleToken } from './sampling-graph.js';
import type { WeightSource } from './sequence-graph.js';
import { head, transformer } from './transformer.js';

/*
 * Sampling a group takes two graphs. `prefillGraph` reads the prompt once and draws every rollout's
 * first token. `decodeGraph` advances all rollouts by one token: each attends to the prompt, which
 * they share, and to what it has written itself.
 *
 * Keys are cached transposed, so that attending is one MatMul, and the layers lie stacked, because
 * each tensor that crosses into a run costs time:
 *   prompt_key [layers, kvHeads, D, prompt]        prompt_value [layers, kvHeads, prompt, D]
 *   past_key   [layers, batch, kvHeads, D, past]   past_value   [layers, batch, kvHeads, past, D]
 */

/** Inputs: `tokens` [1, prompt], sampling's and LoRA's. Outputs: sampling's and the prompt's cache. */
export function prefillGraph(
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
): Graph {
  const graph = new Graph();
  const { numLayers, numKvHeads, headDim, vocabSize } = config;
  const keys: Value[] = [];
  const values: Value[] = [];
  const dims = { batch: 'one', time: 'prompt', rows: 'prompt' };
  const tokens = graph.input('tokens', 'int64', [dims.batch, dims.time]);
  const lora = stackedLoraInputs(graph, config, modules);
  const weight = source(graph);
  const attention = causalAttention(graph, config, dims, causalBias(graph, dims.time));

  const hidden = transformer(graph, config, {
    weight,
    lora,
    tokens: reshape(graph, tokens, [dims.rows]),
    positions: reshape(graph, sequencePositions(graph, dims), [dims.rows, 1]),
    dims,
    attend: (_layer, query, key, value) => {
      const split = (x: Value, perm: number[]) =>
        transpose(graph, reshape(graph, x, [1, 'prompt', numKvHeads, headDim]), perm);
      keys.push(split(key, [0, 2, 3, 1]));
      values.push(split(value, [0, 2, 1, 3]));
      return attention(query, key, value);
    },
  });
  graph.output('prompt_key', concat(graph, keys, 0, numLayers));
  graph.output('prompt_value', concat(graph, values, 0, numLayers));
  const end = graph.length('prompt');
  const last = slice(graph, hidden, 0, [add(graph, end, graph.ints(-1)), end, 1]);
  sampleToken(graph, head(graph, config, weight, last), vocabSize);
  return graph;
}

/**
 * Inputs: `rows` [batch], which rollouts of the step before go on; `tokens` [batch], their newest
 * tokens; `position` [1, 1], where these stand; the caches, sampling's and LoRA's inputs.
 * Outputs: sampling's, and `key` and `value`: the past with this token appended.
 */
export function decodeGraph(
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
): Graph {
  const graph = new Graph();
  const { numLayers, numHeads, numKvHeads, headDim, vocabSize } = config;
  const dims = { batch: 'batch', time: 1, rows: 'batch' };
  const tokens = graph.input('tokens', 'int64', ['batch']);
  const rows = graph.input('rows', 'int64', ['batch']);
  const position = graph.input('position', 'int64', [1, 1]);
  const lora = stackedLoraInputs(graph, config, modules);
  const weight = source(graph);
  const scale = graph.float(1 / Math.sqrt(headDim));
  const perGroup = numHeads / numKvHeads;

  const cache = (name: string, dims: readonly Dim[]) =>
    graph.input(name, 'float32', [numLayers, ...dims]);
  const promptKey = cache('prompt_key', [numKvHeads, headDim, 'prompt']);
  const promptValue = cache('prompt_value', [numKvHeads, 'prompt', headDim]);
  const pastKey = cache('past_key', ['before', numKvHeads, headDim, 'past']);
  const pastValue = cache('past_value', ['before', numKvHeads, 'past', headDim]);
  const allKeys: Value[] = [];
  const allValues: Value[] = [];

  const attend = (layer: number, query: Value, key: Value, value: Value): Value => {
    const ofLayer = (x: Value) => gather(graph, x, graph.int(layer));
    const newKey = reshape(graph, key, ['batch', numKvHeads, headDim, 1]);
    const newValue = reshape(graph, value, ['batch', numKvHeads, 1, headDim]);
    const keys = concat(graph, [gather(graph, ofLayer(pastKey), rows), newKey], 3, 'own');
    const values = concat(graph, [gather(graph, ofLayer(pastValue), rows), newValue], 2, 'own');
    allKeys.push(keys);
    allValues.push(values);

    const grouped = reshape(graph, query, ['batch', numKvHeads, perGroup, headDim]);
    const q = mul(graph, grouped, scale);
    const toPrompt = matmul(graph, q, ofLayer(promptKey));
    const scores = concat(graph, [toPrompt, matmul(graph, q, keys)], 3, 'all');
    const shares = softmax(graph, scores); // [batch, kvHeads, perGroup, prompt + own]
    const split = graph.length('prompt');
    const onPrompt = slice(graph, shares, 3, [graph.ints(0), split, 'prompt']);
    const onOwn = slice(graph, shares, 3, [split, graph.ints(Number.MAX_SAFE_INTEGER), 'own']);
    const context = add(
      graph,
      matmul(graph, onPrompt, ofLayer(promptValue)),
      matmul(graph, onOwn, values),
    );
    return reshape(graph, context, ['batch', numHeads * headDim]);
  };

  const positions = graph.apply('Expand', [position, graph.shape(['batch', 1])], {
    dims: ['batch', 1],
    type: 'int64',
  });
  const hidden = transformer(graph, config, { weight, lora, tokens, positions, dims, attend });
  sampleToken(graph, head(graph, config, weight, hidden), vocabSize);
  graph.output('key', stack(graph, allKeys));
  graph.output('value', stack(graph, allValues));
  return graph;
}
