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
 * Sampling groups takes two graphs. `prefillGraph` reads each prompt once and draws every rollout's
 * first token. `decodeGraph` advances all rollouts by one token: each attends to the shared prompt of its
 * group and to its own tokens. Rows are ordered by group, with the same number per group: batch =
 * groups · perGroup.
 *
 * Keys are cached transposed, so that attention is one MatMul, and all layers are stacked in one tensor,
 * because each tensor passed to a run costs time:
 *   prompt_key [layers, all, 1, kvHeads, D, prompt]  prompt_value [layers, all, 1, kvHeads, prompt, D]
 *   past_key   [layers, before, kvHeads, D, past]    past_value   [layers, before, kvHeads, past, D]
 */

/**
 * Inputs: `tokens` [groups, prompt], padded at their ends; `ends` [groups], the row of each prompt's
 * last token among all groups · prompt; those of sampling and LoRA.
 * Outputs: those of sampling, and the prompts' cache.
 */
export function prefillGraph(
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
): Graph {
  const graph = new Graph();
  const { numLayers, numKvHeads, headDim, vocabSize } = config;
  const keys: Value[] = [];
  const values: Value[] = [];
  const dims = { batch: 'groups', time: 'prompt', rows: 'promptTokens' };
  const tokens = graph.input('tokens', 'int64', [dims.batch, dims.time]);
  const ends = graph.input('ends', 'int64', ['groups']);
  const lora = stackedLoraInputs(graph, config, modules);
  const weight = source(graph);
  // No token attends to later ones, so the padding at the end has no effect.
  const attention = causalAttention(graph, config, dims, causalBias(graph, dims.time));

  const hidden = transformer(graph, config, {
    weight,
    lora,
    tokens: reshape(graph, tokens, [dims.rows]),
    positions: sequencePositions(graph, dims),
    dims,
    attend: (_layer, query, key, value) => {
      const split = (x: Value, perm: number[]) => {
        const heads = reshape(graph, x, ['groups', 'prompt', 1, numKvHeads, headDim]);
        return stack(graph, [transpose(graph, heads, perm)]);
      };
      keys.push(split(key, [0, 2, 3, 4, 1]));
      values.push(split(value, [0, 2, 3, 1, 4]));
      return attention(query, key, value);
    },
  });
  graph.output('prompt_key', concat(graph, keys, 0, numLayers));
  graph.output('prompt_value', concat(graph, values, 0, numLayers));
  const logits = head(graph, config, weight, gather(graph, hidden, ends));
  sampleToken(graph, logits, vocabSize);
  return graph;
}

/**
 * Inputs: `tokens` [groups, perGroup], the newest tokens; `rows` [batch], the rows of the previous
 * step that they continue; `positions` [batch, 1]; `groups` [groups], the indices of their prompts among
 * all; `prompt_bias` [all, 1, 1, 1, prompt], -∞ on padding; the caches, sampling's
 * and LoRA's inputs. Outputs: sampling's, and `key` and `value`: the past with this token appended.
 */
export function decodeGraph(
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
): Graph {
  const graph = new Graph();
  const { numLayers, numHeads, numKvHeads, headDim, vocabSize } = config;
  const dims = { batch: 'batch', time: 1, rows: 'batch' };
  const tokens = graph.input('tokens', 'int64', ['groups', 'perGroup']);
  const rows = graph.input('rows', 'int64', ['batch']);
  const positions = graph.input('positions', 'int64', ['batch', 1]);
  const groups = graph.input('groups', 'int64', ['groups']);
  const promptBias = graph.input('prompt_bias', 'float32', ['all', 1, 1, 1, 'prompt']);
  const lora = stackedLoraInputs(graph, config, modules);
  const weight = source(graph);
  const scale = graph.float(1 / Math.sqrt(headDim));
  const perKvHead = numHeads / numKvHeads;

  const cache = (name: string, dims: readonly Dim[]) =>
    graph.input(name, 'float32', [numLayers, ...dims]);
  const promptKey = cache('prompt_key', ['all', 1, numKvHeads, headDim, 'prompt']);
  const promptValue = cache('prompt_value', ['all', 1, numKvHeads, 'prompt', headDim]);
  const pastKey = cache('past_key', ['before', numKvHeads, headDim, 'past']);
  const pastValue = cache('past_value', ['before', numKvHeads, 'past', headDim]);
  const bias = gather(graph, promptBias, groups);
  const allKeys: Value[] = [];
  const allValues: Value[] = [];

  const attend = (layer: number, query: Value, key: Value, value: Value): Value => {
    const ofLayer = (x: Value) => gather(graph, x, graph.int(layer));
    const ofPrompt = (x: Value) => gather(graph, ofLayer(x), groups);
    const newKey = reshape(graph, key, ['batch', numKvHeads, headDim, 1]);
    const newValue = reshape(graph, value, ['batch', numKvHeads, 1, headDim]);
    const keys = concat(graph, [gather(graph, ofLayer(pastKey), rows), newKey], 3, 'own');
    const values = concat(graph, [gather(graph, ofLayer(pastValue), rows), newValue], 2, 'own');
    allKeys.push(keys);
    allValues.push(values);

    const grouped = reshape(graph, query, ['groups', 'perGroup', numKvHeads, perKvHead, headDim]);
    const q = mul(graph, grouped, scale);
    const biased = add(graph, matmul(graph, q, ofPrompt(promptKey)), bias);
    const toPrompt = reshape(graph, biased, ['batch', numKvHeads, perKvHead, 'prompt']);
    const own = reshape(graph, q, ['batch', numKvHeads, perKvHead, headDim]);
    const scores = concat(graph, [toPrompt, matmul(graph, own, keys)], 3, 'seen');
    const shares = softmax(graph, scores); // [batch, kvHeads, perKvHead, prompt + own]
    const split = graph.length('prompt');
    const onPrompt = slice(graph, shares, 3, [graph.ints(0), split, 'prompt']);
    const onOwn = slice(graph, shares, 3, [split, graph.ints(Number.MAX_SAFE_INTEGER), 'own']);
    const fromPrompt = matmul(
      graph,
      reshape(graph, onPrompt, ['groups', 'perGroup', numKvHeads, perKvHead, 'prompt']),
      ofPrompt(promptValue),
    );
    const context = add(
      graph,
      reshape(graph, fromPrompt, ['batch', numKvHeads, perKvHead, headDim]),
      matmul(graph, onOwn, values),
    );
    return reshape(graph, context, ['batch', numHeads * headDim]);
  };

  const hidden = transformer(graph, config, {
    weight,
    lora,
    tokens: reshape(graph, tokens, ['batch']),
    positions,
    dims,
    attend,
  });
  sampleToken(graph, head(graph, config, weight, hidden), vocabSize);
  graph.output('key', stack(graph, allKeys));
  graph.output('value', stack(graph, allValues));
  return graph;
}
