import type { Dim, Graph, Value } from './graph/graph.js';
import {
  add,
  cast,
  lessOrEqual,
  matmul,
  mul,
  reshape,
  softmax,
  transpose,
  where,
} from './graph/operators.js';
import type { ModelConfig } from './model-config.js';

/** The dimensions of the tokens in a batch: `rows` = batch · time. */
export interface TokenDims {
  readonly batch: Dim;
  readonly time: Dim;
  readonly rows: Dim;
}

/** 0, 1, … below a length [1], as int64 [dim]. */
function range(graph: Graph, length: Value, dim: string): Value {
  const scalar = graph.apply('Squeeze', [length], { dims: [], type: 'int64' });
  return graph.apply('Range', [graph.int(0), scalar, graph.int(1)], { dims: [dim], type: 'int64' });
}

/** Position 0, 1, … of each token, as int64 [time]. */
function timeRange(graph: Graph, time: string): Value {
  return range(graph, graph.length(time), time);
}

/**
 * The causal mask [time, own]: 0 for a token itself and earlier ones, -∞ for later ones.
 *
 * @param past the symbol of the number of tokens before, which all are visible; own = past + time.
 */
export function causalBias(graph: Graph, time: string, past?: string): Value {
  const own = past === undefined ? time : 'own';
  const positions = timeRange(graph, time);
  const [seen, seeing] =
    past === undefined
      ? [positions, positions]
      : [
          range(graph, add(graph, graph.length(time), graph.length(past)), own),
          add(graph, positions, graph.length(past)),
        ];
  const isVisible = lessOrEqual(
    graph,
    reshape(graph, seen, [1, own]),
    reshape(graph, seeing, [time, 1]),
  );
  return where(graph, isVisible, graph.float(0), graph.float(-Infinity));
}

/**
 * Grouped-query attention of every token to the tokens that `bias` allows.
 *
 * @param bias 0 or -∞, of a shape that broadcasts to [batch, kvHeads, heads / kvHeads, time, time].
 */
export function causalAttention(
  graph: Graph,
  config: ModelConfig,
  dims: TokenDims,
  bias: Value,
): (query: Value, key: Value, value: Value) => Value {
  const { headDim, numHeads, numKvHeads } = config;
  const { batch, time } = dims;
  const perGroup = numHeads / numKvHeads;
  const scale = graph.float(1 / Math.sqrt(headDim));

  return (query, key, value) => {
    const q = transpose(
      graph,
      reshape(graph, query, [batch, time, numKvHeads, perGroup, headDim]),
      [0, 2, 3, 1, 4],
    );
    const k = transpose(
      graph,
      reshape(graph, key, [batch, time, numKvHeads, 1, headDim]),
      [0, 2, 3, 4, 1],
    );
    const v = transpose(
      graph,
      reshape(graph, value, [batch, time, numKvHeads, 1, headDim]),
      [0, 2, 3, 1, 4],
    );
    const scores = add(graph, matmul(graph, mul(graph, q, scale), k), bias);
    const context = matmul(graph, softmax(graph, scores), v); // [batch, kvHeads, perGroup, time, D]
    return reshape(graph, transpose(graph, context, [0, 3, 1, 2, 4]), [
      dims.rows,
      numHeads * headDim,
    ]);
  };
}

/** `positions` of a batch of sequences that all begin at 0: [batch, time]. */
export function sequencePositions(
  graph: Graph,
  { batch, time }: { batch: string; time: string },
): Value {
  const shape = graph.shape([batch, time]);
  return graph.apply('Expand', [cast(graph, timeRange(graph, time), 'int64'), shape], {
    dims: [batch, time],
    type: 'int64',
  });
}
