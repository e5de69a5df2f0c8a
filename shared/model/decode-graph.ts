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
import { samplingLora, type AdaptedModules } from './lora-graph.js';
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
 * Keys are cached transposed, so that attention is one MatMul:
 *   prompt_key [all, 1, kvHeads, D, prompt]  prompt_value [all, 1, kvHeads, prompt, D]
 *   past_key   [before, kvHeads, D, past]    past_value   [before, kvHeads, past, D]
 * The caches of all layers are stacked in one tensor along a first axis, or each layer has one of its own, such as
 * `past_key.0`. Stacked, they cost a copy of each layer's cache a step; apart, some 10 µs for each tensor.
 */

/** How the tensors of all layers come into a run and out of it. */
export interface LayerLayout {
  readonly numLayers: number;
  readonly isStacked: boolean;
}

/** The names of a cache's tensors. */
export function cacheNames({ numLayers, isStacked }: LayerLayout, name: string): readonly string[] {
  return isStacked ? [name] : Array.from({ length: numLayers }, (_, layer) => `${name}.${layer}`);
}

/** Declares the inputs of a cache. @returns a layer's part. */
function cacheInput(
  graph: Graph,
  layout: LayerLayout,
  name: string,
  dims: readonly Dim[],
): (layer: number) => Value {
  if (layout.isStacked) {
    const stacked = graph.input(name, 'float32', [layout.numLayers, ...dims]);
    return (layer) => gather(graph, stacked, graph.int(layer));
  }
  const layers = cacheNames(layout, name).map((own) => graph.input(own, 'float32', dims));
  return (layer) => layers[layer]!;
}

/** Declares the outputs of a cache, given each layer's part. */
function cacheOutput(
  graph: Graph,
  layout: LayerLayout,
  name: string,
  layers: readonly Value[],
): void {
  const values = layout.isStacked ? [stack(graph, layers)] : layers;
  cacheNames(layout, name).forEach((own, i) => {
    graph.output(own, values[i]!);
  });
}

/**
 * Inputs: `tokens` [groups, prompt], padded at their ends; `ends` [groups], the row of each prompt's
 * last token among all groups · prompt; those of sampling and LoRA.
 * Outputs: those of sampling, and the prompts' cache.
 */
export function prefillGraph(
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
  layout: LayerLayout,
): Graph {
  const graph = new Graph();
  const { numKvHeads, headDim, vocabSize } = config;
  const keys: Value[] = [];
  const values: Value[] = [];
  const dims = { batch: 'groups', time: 'prompt', rows: 'promptTokens' };
  const tokens = graph.input('tokens', 'int64', [dims.batch, dims.time]);
  const ends = graph.input('ends', 'int64', ['groups']);
  const lora = samplingLora(graph, config, modules, layout.isStacked);
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
        return transpose(graph, heads, perm);
      };
      keys.push(split(key, [0, 2, 3, 4, 1]));
      values.push(split(value, [0, 2, 3, 1, 4]));
      return attention(query, key, value);
    },
  });
  cacheOutput(graph, layout, 'prompt_key', keys);
  cacheOutput(graph, layout, 'prompt_value', values);
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
  layout: LayerLayout,
): Graph {
  const graph = new Graph();
  const { numHeads, numKvHeads, headDim, vocabSize } = config;
  const dims = { batch: 'batch', time: 1, rows: 'batch' };
  const tokens = graph.input('tokens', 'int64', ['groups', 'perGroup']);
  const rows = graph.input('rows', 'int64', ['batch']);
  const positions = graph.input('positions', 'int64', ['batch', 1]);
  const groups = graph.input('groups', 'int64', ['groups']);
  const promptBias = graph.input('prompt_bias', 'float32', ['all', 1, 1, 1, 'prompt']);
  const lora = samplingLora(graph, config, modules, layout.isStacked);
  const weight = source(graph);
  const scale = graph.float(1 / Math.sqrt(headDim));
  const perKvHead = numHeads / numKvHeads;

  const cache = (name: string, dims: readonly Dim[]) => cacheInput(graph, layout, name, dims);
  const promptKey = cache('prompt_key', ['all', 1, numKvHeads, headDim, 'prompt']);
  const promptValue = cache('prompt_value', ['all', 1, numKvHeads, 'prompt', headDim]);
  const pastKey = cache('past_key', ['before', numKvHeads, headDim, 'past']);
  const pastValue = cache('past_value', ['before', numKvHeads, 'past', headDim]);
  const bias = gather(graph, promptBias, groups);
  const allKeys: Value[] = [];
  const allValues: Value[] = [];

  const attend = (layer: number, query: Value, key: Value, value: Value): Value => {
    const ofPrompt = (layers: (layer: number) => Value) => gather(graph, layers(layer), groups);
    const newKey = reshape(graph, key, ['batch', numKvHeads, headDim, 1]);
    const newValue = reshape(graph, value, ['batch', numKvHeads, 1, headDim]);
    const keys = concat(graph, [gather(graph, pastKey(layer), rows), newKey], 3, 'own');
    const values = concat(graph, [gather(graph, pastValue(layer), rows), newValue], 2, 'own');
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
  cacheOutput(graph, layout, 'key', allKeys);
  cacheOutput(graph, layout, 'value', allValues);
  return graph;
}
