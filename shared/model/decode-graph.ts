import { causalBias } from './causal-attention.js';
import { Graph, type Dim, type Value } from './graph/graph.js';
import {
  add,
  cast,
  concat,
  div,
  exp,
  gather,
  gatherElements,
  logSoftmax,
  matmul,
  mul,
  reduceSum,
  reshape,
  slice,
  softmax,
  stack,
  transpose,
  where,
} from './graph/operators.js';
import { samplingLora, type AdaptedModules } from './lora-graph.js';
import type { ModelConfig } from './model-config.js';
import { head, transformer } from './transformer.js';
import type { WeightSource } from './weight-source.js';

/*
 * Sampling groups has two parts. First each prompt is read once, and every rollout's first token is drawn. Then
 * all rollouts advance by one token a step: each attends to the shared prompt of its group and to its own tokens.
 * Rows are ordered by group, with the same number per group: batch = groups · perGroup.
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

/**
 * What a graph is for: `prompts` reads texts, `steps` advances rollouts by one token. `both` does either with one copy
 * of the weights, and takes some operators more.
 */
export type SamplingPart = 'prompts' | 'steps' | 'both';

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
 * Inputs: `tokens` [groups, perGroup, time], the newest of each row (`steps`: one); `positions` [batch, time]; the inputs
 * of sampling and LoRA. Not in `steps`: `ends` [draws], the indices among all batch · time tokens after which a token is
 * drawn. Texts are padded at their ends, which no token before sees.
 *
 * Not in `prompts`, the past: `rows` [batch], the rows of the previous step that they continue; `groups`
 * [groups], the indices of their prompts among all; `prompt_bias` [all, 1, 1, 1, prompt], -∞ on padding; the caches.
 *
 * Outputs: sampling's, and `key` and `value`: the past, if there is one, with these tokens appended.
 */
export function samplingGraph(
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
  layout: LayerLayout,
  part: SamplingPart,
): Graph {
  const graph = new Graph();
  const { numHeads, numKvHeads, headDim, vocabSize } = config;
  const perKvHead = numHeads / numKvHeads;
  const time = part === 'steps' ? 1 : 'time';
  const dims = { batch: 'batch', time, rows: time === 1 ? 'batch' : 'tokens' };
  const queries = time === 1 ? perKvHead : 'queries'; // of a key's head, perKvHead · time

  const tokens = graph.input('tokens', 'int64', ['groups', 'perGroup', time]);
  const positions = graph.input('positions', 'int64', ['batch', time]);
  const ends = time === 1 ? undefined : graph.input('ends', 'int64', ['draws']);
  const past = part === 'prompts' ? undefined : pastInputs(graph, config, layout);
  const lora = samplingLora(graph, config, modules);
  const weights = source(graph);
  const scale = graph.float(1 / Math.sqrt(headDim));
  const bias =
    time === 1
      ? undefined
      : concat(
          graph,
          Array<Value>(perKvHead).fill(causalBias(graph, time, past && 'past')),
          0,
          queries,
        );
  const allKeys: Value[] = [];
  const allValues: Value[] = [];

  /** Splits heads, and arranges the axes, which with one token is a reshape. */
  const heads = (x: Value, perm: readonly number[]): Value => {
    const split = ['batch', time, numKvHeads, headDim];
    return time === 1
      ? reshape(
          graph,
          x,
          perm.map((axis) => split[axis]!),
        )
      : transpose(graph, reshape(graph, x, split), perm);
  };

  const attend = (layer: number, query: Value, key: Value, value: Value): Value => {
    const newKeys = heads(key, [0, 2, 3, 1]);
    const newValues = heads(value, [0, 2, 1, 3]);
    const keys =
      past === undefined
        ? newKeys
        : concat(graph, [gather(graph, past.key(layer), past.rows), newKeys], 3, 'own');
    const values =
      past === undefined
        ? newValues
        : concat(graph, [gather(graph, past.value(layer), past.rows), newValues], 2, 'own');
    allKeys.push(keys);
    allValues.push(values);

    const inHeads =
      time === 1
        ? query
        : transpose(
            graph,
            reshape(graph, query, ['batch', time, numKvHeads, perKvHead, headDim]),
            [0, 2, 3, 1, 4],
          );
    const q = mul(graph, inHeads, scale);
    const own = reshape(graph, q, ['batch', numKvHeads, queries, headDim]);
    const toOwn = matmul(graph, own, keys); // [batch, kvHeads, queries, own]
    const visible = bias === undefined ? toOwn : add(graph, toOwn, bias);
    const context =
      past === undefined
        ? matmul(graph, softmax(graph, visible), values)
        : withPrompt(layer, q, visible, values, past);
    if (time === 1) return reshape(graph, context, ['batch', numHeads * headDim]);
    const split = reshape(graph, context, ['batch', numKvHeads, perKvHead, time, headDim]);
    const joined = transpose(graph, split, [0, 3, 1, 2, 4]);
    return reshape(graph, joined, [dims.rows, numHeads * headDim]);
  };

  /** Attention to the prompt of the group and to the own tokens: [batch, kvHeads, queries, D]. */
  const withPrompt = (layer: number, q: Value, toOwn: Value, values: Value, past: Past): Value => {
    const ofPrompt = (layers: (layer: number) => Value) =>
      gather(graph, layers(layer), past.groups);
    const grouped = reshape(graph, q, ['groups', 'perGroup', numKvHeads, queries, headDim]);
    const biased = add(graph, matmul(graph, grouped, ofPrompt(past.promptKey)), past.promptBias);
    const toPrompt = reshape(graph, biased, ['batch', numKvHeads, queries, 'prompt']);
    const shares = softmax(graph, concat(graph, [toPrompt, toOwn], 3, 'seen'));
    const split = graph.length('prompt');
    const onPrompt = slice(graph, shares, 3, [graph.ints(0), split, 'prompt']);
    const onOwn = slice(graph, shares, 3, [split, graph.ints(Number.MAX_SAFE_INTEGER), 'own']);
    const fromPrompt = matmul(
      graph,
      reshape(graph, onPrompt, ['groups', 'perGroup', numKvHeads, queries, 'prompt']),
      ofPrompt(past.promptValue),
    );
    return add(
      graph,
      reshape(graph, fromPrompt, ['batch', numKvHeads, queries, headDim]),
      matmul(graph, onOwn, values),
    );
  };

  const hidden = transformer(graph, config, {
    weights,
    lora,
    tokens: reshape(graph, tokens, [dims.rows]),
    positions,
    dims,
    attend,
  });
  const drawnFrom = ends === undefined ? hidden : gather(graph, hidden, ends);
  sampleToken(graph, head(config, weights, drawnFrom), vocabSize);
  cacheOutput(graph, layout, 'key', allKeys);
  cacheOutput(graph, layout, 'value', allValues);
  return graph;
}

/** What rows have read before. */
interface Past {
  readonly rows: Value;
  readonly groups: Value;
  readonly promptBias: Value; // [groups, 1, 1, 1, prompt]
  readonly promptKey: (layer: number) => Value;
  readonly promptValue: (layer: number) => Value;
  readonly key: (layer: number) => Value;
  readonly value: (layer: number) => Value;
}

function pastInputs(graph: Graph, { numKvHeads, headDim }: ModelConfig, layout: LayerLayout): Past {
  const rows = graph.input('rows', 'int64', ['batch']);
  const groups = graph.input('groups', 'int64', ['groups']);
  const promptBias = graph.input('prompt_bias', 'float32', ['all', 1, 1, 1, 'prompt']);
  const cache = (name: string, dims: readonly Dim[]) => cacheInput(graph, layout, name, dims);
  return {
    rows,
    groups,
    promptBias: gather(graph, promptBias, groups),
    promptKey: cache('prompt_key', ['all', 1, numKvHeads, headDim, 'prompt']),
    promptValue: cache('prompt_value', ['all', 1, numKvHeads, 'prompt', headDim]),
    key: cache('past_key', ['before', numKvHeads, headDim, 'past']),
    value: cache('past_value', ['before', numKvHeads, 'past', headDim]),
  };
}

/**
 * Appends the draw of one token per row from softmax(logits / temperature), by inverting the
 * cumulative distribution at a uniform number. Inputs, each [batch, 1]: `uniform` in [0, 1),
 * `temperature`; `greedy` bool, which takes the most probable token instead; and `forced` int64, which is taken
 * instead unless it is negative.
 *
 * Outputs: `token` [batch] int64 and `logprob` [batch], natural log, of softmax(logits / temperature),
 * however the token was chosen: what a score of the same tokens gives.
 *
 * @param logits [batch, vocabSize]; the dimension may have another name.
 */
function sampleToken(graph: Graph, logits: Value, vocabSize: number): void {
  const batch = logits.dims[0]!;
  const uniform = graph.input('uniform', 'float32', [batch, 1]);
  const temperature = graph.input('temperature', 'float32', [batch, 1]);
  const greedy = graph.input('greedy', 'bool', [batch, 1]);
  const forced = graph.input('forced', 'int64', [batch, 1]);

  const logprobs = logSoftmax(graph, div(graph, logits, temperature));
  const cumulative = graph.apply('CumSum', [exp(graph, logprobs), graph.int(1)], {
    dims: logprobs.dims,
  });
  // Rounding makes the total differ slightly from 1, so the threshold is a share of the actual total.
  const total = graph.apply('ReduceMax', [cumulative, graph.ints(1)], { dims: [batch, 1] });
  const isBelow = graph.apply('LessOrEqual', [cumulative, mul(graph, uniform, total)], {
    dims: logprobs.dims,
    type: 'bool',
  });
  const drawn = cast(graph, reduceSum(graph, cast(graph, isBelow, 'float32'), [1]), 'int64');
  const best = graph.apply(
    'ArgMax',
    [logprobs],
    { dims: [batch, 1], type: 'int64' },
    { axis: 1, keepdims: 1 },
  );
  const inRange = graph.apply('Min', [drawn, graph.int(vocabSize - 1)], {
    dims: drawn.dims,
    type: 'int64',
  });
  const isForced = graph.apply('GreaterOrEqual', [forced, graph.int(0)], {
    dims: forced.dims,
    type: 'bool',
  });
  const token = where(graph, isForced, forced, where(graph, greedy, best, inRange));
  const logprob = gatherElements(graph, logprobs, token);
  graph.output('token', reshape(graph, token, [batch]));
  graph.output('logprob', reshape(graph, logprob, [batch]));
}
