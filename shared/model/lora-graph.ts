import { Graph, type Value } from './graph/graph.js';
import { add, gemm, matmul, mul } from './graph/operators.js';
import type { Adapter } from './lora.js';
import { floats, type Feeds } from './graph/session.js';
import { linearModules } from './parameters.js';
import type { ModelConfig } from './model-config.js';
import type { Tensor } from './safetensors.js';
import { weightInput, type WeightSource } from './weight-source.js';

/** LoRA's matrices as inputs of a graph, so that a new adapter needs no new graph. */
export interface LoraValues {
  readonly scale?: Value; // alpha / rank, scalar; absent if B contains it
  readonly matrices: ReadonlyMap<string, Value>; // by the adapter's keys
}

/** The adapted modules of every layer, such as `self_attn.q_proj`, sorted; a graph is built for one such list. */
export type AdaptedModules = readonly string[];

export function adaptedModules(adapter: Adapter): AdaptedModules {
  const names = [...adapter.tensors.keys()].map(
    (key) => /^layers\.\d+\.(.+)\.lora_[AB]$/.exec(key)?.[1],
  );
  return [...new Set(names.filter((name) => name !== undefined))].sort();
}

/** Declares an input for each matrix of an adapter of any rank, A [rank, in] and B [out, rank], and its scale. */
export function loraInputs(
  graph: Graph,
  config: ModelConfig,
  modules: AdaptedModules,
): LoraValues | undefined {
  if (modules.length === 0) return undefined;
  const matrices = matrixInputs(graph, config, modules);
  return { scale: graph.input('lora_scale', 'float32', []), matrices };
}

function matrixInputs(
  graph: Graph,
  config: ModelConfig,
  modules: AdaptedModules,
): ReadonlyMap<string, Value> {
  const matrices = new Map<string, Value>();
  for (let layer = 0; layer < config.numLayers; layer++) {
    for (const { module, out, in: width } of linearModules(config)) {
      if (!modules.includes(module)) continue;
      const key = `layers.${layer}.${module}`;
      matrices.set(`${key}.lora_A`, graph.input(`${key}.lora_A`, 'float32', ['rank', width]));
      matrices.set(`${key}.lora_B`, graph.input(`${key}.lora_B`, 'float32', [out, 'rank']));
    }
  }
  return matrices;
}

/** The feeds of an adapter; empty if it adapts no module. The tensors share its memory. */
export function loraFeeds(adapter: Adapter): Feeds {
  if (adapter.tensors.size === 0) return {};
  const feeds: Feeds = { lora_scale: floats(Float32Array.of(adapter.alpha / adapter.rank), []) };
  for (const [key, { data, dims }] of adapter.tensors) feeds[key] = floats(data, dims);
  return feeds;
}

/**
 * Declares the inputs of an adapter for sampling, whose feeds are made once for each version: B contains the scale.
 */
export function samplingLora(
  graph: Graph,
  config: ModelConfig,
  modules: AdaptedModules,
): LoraValues | undefined {
  if (modules.length === 0) return undefined;
  return { matrices: matrixInputs(graph, config, modules) };
}

/** The feeds of an adapter for `samplingLora`. */
export function samplingLoraFeeds({ rank, alpha, tensors }: Adapter): Feeds {
  const scale = alpha / rank;
  const scaled = (key: string, { data }: Tensor) =>
    key.endsWith('.lora_B') && scale !== 1 ? data.map((value) => value * scale) : data;
  return Object.fromEntries(
    [...tensors].map(([key, tensor]) => [key, floats(scaled(key, tensor), tensor.dims)]),
  );
}

/** The matrices that an adapter changes, by their names in the model, with their shapes [out, in]. */
export function adaptedMatrices(
  config: ModelConfig,
  modules: AdaptedModules,
): Map<string, readonly [number, number]> {
  const adapted = linearModules(config).filter(({ module }) => modules.includes(module));
  const layers = Array.from({ length: config.numLayers }, (_, layer) => layer);
  return new Map(
    layers.flatMap((layer) =>
      adapted.map(({ module, out, in: width }) => [
        `model.layers.${layer}.${module}.weight`,
        [out, width],
      ]),
    ),
  );
}

/**
 * Merges an adapter into the model: for each matrix W that it changes, W + scale · B·A, as the input that `withInputs` declares.
 * With a small model this takes less time than the adapter's own products with every token.
 */
export function mergingGraph(
  config: ModelConfig,
  source: WeightSource,
  modules: AdaptedModules,
): Graph {
  const graph = new Graph();
  const { scale, matrices } = loraInputs(graph, config, modules)!;
  const weights = source(graph);
  for (const name of adaptedMatrices(config, modules).keys()) {
    const key = name.slice('model.'.length, -'.weight'.length);
    const [a, b] = [matrices.get(`${key}.lora_A`)!, matrices.get(`${key}.lora_B`)!];
    const update = matmul(graph, mul(graph, b, scale!), a);
    graph.output(weightInput(name), add(graph, weights.value(name), update));
  }
  return graph;
}

/**
 * `base + scale · x·Aᵀ·Bᵀ` where the module is adapted.
 *
 * Source: LoRA (Hu et al. 2021, arXiv:2106.09685).
 */
export function lowRankUpdate(
  graph: Graph,
  lora: LoraValues | undefined,
  module: string,
  x: Value,
  base: Value,
): Value {
  const a = lora?.matrices.get(`${module}.lora_A`);
  const b = lora?.matrices.get(`${module}.lora_B`);
  if (lora === undefined || a === undefined || b === undefined) return base;
  const narrow = gemm(graph, x, a, { transB: true });
  const scaled = lora.scale === undefined ? narrow : mul(graph, narrow, lora.scale);
  return gemm(graph, scaled, b, { transB: true, c: base });
}
