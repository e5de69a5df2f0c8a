import type { Graph, Value } from './graph/graph.js';
import { cast, gather, gemm } from './graph/operators.js';
import type { StoredTensor } from './model-weights.js';
import type { Tensor } from './safetensors.js';

/** The model's weights in a graph, by their Hugging Face names. */
export interface Weights {
  value(name: string): Value;
  /** `x · Wᵀ (+ bias)` for x [rows, in], W [out, in] and bias [out]. */
  product(x: Value, name: string, bias?: Value): Value;
  /** The rows of a matrix with these indices. */
  rows(name: string, indices: Value): Value;
}

/** How a graph gets the model's weights. */
export type WeightSource = (graph: Graph) => Weights;

const typeOf = { F32: 'float32', F16: 'float16', BF16: 'bfloat16' } as const;

/** The weights as constants, for LoRA and sampling; half precision is widened exactly. */
export function frozen(
  weights: ReadonlyMap<string, Tensor> | ReadonlyMap<string, StoredTensor>,
): WeightSource {
  return (graph) => {
    const declare = (name: string, alias: string): Value => {
      const weight = weights.get(name)!;
      const type = 'dtype' in weight ? typeOf[weight.dtype] : 'float32';
      return graph.weight(alias, weight.dims, weight.data, type);
    };
    const ofConstants = weightsFrom(
      graph,
      once((name) => widened(graph, declare(name, name))),
    );
    return {
      ...ofConstants,
      // A matrix in a file is mapped once more, so that only these rows of it need memory.
      rows: (name, indices) =>
        'dtype' in weights.get(name)!
          ? widened(graph, gather(graph, declare(name, `${name} in rows`), indices))
          : ofConstants.rows(name, indices),
    };
  };
}

/** The weights as inputs, for pre-training. */
export function trainable(weights: ReadonlyMap<string, Tensor>): WeightSource {
  return (graph) => {
    const values = new Map(
      [...weights].map(([name, { dims }]) => [name, graph.input(name, 'float32', dims)]),
    );
    return weightsFrom(graph, (name) => values.get(name)!);
  };
}

/** The input that `withInputs` declares for a weight. */
export const weightInput = (name: string): string => `given ${name}`;

/** The weights of another source, but these, given by name and shape, as inputs. */
export function withInputs(
  source: WeightSource,
  inputs: ReadonlyMap<string, readonly number[]>,
): WeightSource {
  return (graph) => {
    const base = source(graph);
    const values = new Map(
      [...inputs].map(([name, dims]) => [name, graph.input(weightInput(name), 'float32', dims)]),
    );
    return {
      ...weightsFrom(graph, (name) => values.get(name) ?? base.value(name)),
      rows: (name, indices) => base.rows(name, indices),
    };
  };
}

function weightsFrom(graph: Graph, value: (name: string) => Value): Weights {
  return {
    value,
    product: (x, name, bias) =>
      gemm(graph, x, value(name), { transB: true, ...(bias === undefined ? {} : { c: bias }) }),
    rows: (name, indices) => gather(graph, value(name), indices),
  };
}

function widened(graph: Graph, x: Value): Value {
  return x.type === 'float32' ? x : cast(graph, x, 'float32');
}

function once(build: (name: string) => Value): (name: string) => Value {
  const values = new Map<string, Value>();
  return (name) => {
    let value = values.get(name);
    if (value === undefined) values.set(name, (value = build(name)));
    return value;
  };
}
