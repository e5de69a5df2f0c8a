import type { Graph, Value } from './graph/graph.js';
import { gather, gemm, mul } from './graph/operators.js';
import type { Adapter } from './lora.js';
import { floats, type Feeds } from './graph/session.js';
import { linearModules } from './parameters.js';
import type { ModelConfig } from './model-config.js';
import type { Tensor } from './safetensors.js';

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
 * A run takes about 10 µs per input tensor, which for a small model is more than the arithmetic of a decoding step.
 *
 * @param isStacked whether a module's matrices of all layers are one input. The graph copies each out of its stack.
 */
export function samplingLora(
  graph: Graph,
  config: ModelConfig,
  modules: AdaptedModules,
  isStacked: boolean,
): LoraValues | undefined {
  if (modules.length === 0) return undefined;
  if (!isStacked) return { matrices: matrixInputs(graph, config, modules) };
  const { numLayers } = config;
  const matrices = new Map<string, Value>();
  for (const { module, out, in: width } of linearModules(config)) {
    if (!modules.includes(module)) continue;
    const a = graph.input(`${module}.lora_A`, 'float32', [numLayers, 'rank', width]);
    const b = graph.input(`${module}.lora_B`, 'float32', [numLayers, out, 'rank']);
    for (let layer = 0; layer < numLayers; layer++) {
      matrices.set(`layers.${layer}.${module}.lora_A`, gather(graph, a, graph.int(layer)));
      matrices.set(`layers.${layer}.${module}.lora_B`, gather(graph, b, graph.int(layer)));
    }
  }
  return { matrices };
}

/** The feeds of an adapter for `samplingLora`. */
export function samplingLoraFeeds(adapter: Adapter, isStacked: boolean): Feeds {
  const scale = adapter.alpha / adapter.rank;
  const scaled = (key: string, { data }: Tensor) =>
    key.endsWith('.lora_B') && scale !== 1 ? data.map((value) => value * scale) : data;
  const feeds: Feeds = {};
  if (!isStacked) {
    for (const [key, tensor] of adapter.tensors) {
      feeds[key] = floats(scaled(key, tensor), tensor.dims);
    }
    return feeds;
  }
  const stacks = new Map<string, Tensor[]>();
  for (const [key, tensor] of adapter.tensors) {
    const name = key.replace(/^layers\.\d+\./, '');
    const layer = { ...tensor, data: scaled(key, tensor) };
    const stack = stacks.get(name);
    if (stack === undefined) stacks.set(name, [layer]);
    else stack.push(layer);
  }
  for (const [name, layers] of stacks) {
    const { dims, data } = layers[0]!;
    const all = new Float32Array(layers.length * data.length);
    layers.forEach((layer, i) => {
      all.set(layer.data, i * data.length);
    });
    feeds[name] = floats(all, [layers.length, ...dims]);
  }
  return feeds;
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
