import type { Dim, Graph, Value } from './graph.js';

/*
 * The ONNX operators that this project uses, each with its rule for shapes. Semantics are those of
 * the ONNX operator of the same name (opset 23), https://onnx.ai/onnx/operators/.
 */

/** The shape of an elementwise operator's result: axes are aligned at the end, length 1 broadcasts. */
function broadcastDims(a: readonly Dim[], b: readonly Dim[]): Dim[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, i) => {
    const left = a[i - rank + a.length] ?? 1;
    const right = b[i - rank + b.length] ?? 1;
    if (left === right || right === 1) return left;
    if (left === 1) return right;
    throw new Error(`shapes [${a.join()}] and [${b.join()}] do not broadcast`);
  });
}

const elementwise =
  (op: string) =>
  (graph: Graph, a: Value, b: Value): Value =>
    graph.apply(op, [a, b], { dims: broadcastDims(a.dims, b.dims), type: a.type });

export const add = elementwise('Add');
export const sub = elementwise('Sub');
export const mul = elementwise('Mul');
export const div = elementwise('Div');
export const min = elementwise('Min');
export const max = elementwise('Max');

const compare =
  (op: string) =>
  (graph: Graph, a: Value, b: Value): Value =>
    graph.apply(op, [a, b], { dims: broadcastDims(a.dims, b.dims), type: 'bool' });

export const lessOrEqual = compare('LessOrEqual');
export const greaterOrEqual = compare('GreaterOrEqual');

const unary =
  (op: string) =>
  (graph: Graph, x: Value): Value =>
    graph.apply(op, [x], { dims: x.dims, type: x.type });

export const neg = unary('Neg');
export const exp = unary('Exp');
export const sqrt = unary('Sqrt');
export const sigmoid = unary('Sigmoid');
export const cos = unary('Cos');
export const sin = unary('Sin');
/** The value itself, through which no gradient flows. */
export const stopGradient = unary('Identity');

/** `condition ? a : b`, element by element. */
export function where(graph: Graph, condition: Value, a: Value, b: Value): Value {
  const dims = broadcastDims(condition.dims, broadcastDims(a.dims, b.dims));
  return graph.apply('Where', [condition, a, b], { dims, type: a.type });
}

export function cast(graph: Graph, x: Value, type: 'float32' | 'int64'): Value {
  return graph.apply('Cast', [x], { dims: x.dims, type }, { to: type === 'float32' ? 1 : 7 });
}

/** Matrix product over the last two axes; the axes before them broadcast. */
export function matmul(graph: Graph, a: Value, b: Value): Value {
  const dims = [
    ...broadcastDims(a.dims.slice(0, -2), b.dims.slice(0, -2)),
    a.dims.at(-2)!,
    b.dims.at(-1)!,
  ];
  if (a.dims.at(-1) !== b.dims.at(-2)) {
    throw new Error(`MatMul of [${a.dims.join()}] and [${b.dims.join()}]`);
  }
  return graph.apply('MatMul', [a, b], { dims });
}

interface GemmOptions {
  readonly transA?: boolean;
  readonly transB?: boolean;
  /** Added to the product; has its shape. */
  readonly c?: Value;
}

/** `a · b (+ c)` of two matrices, either of them transposed first. */
export function gemm(graph: Graph, a: Value, b: Value, options: GemmOptions = {}): Value {
  const { transA = false, transB = false, c } = options;
  const [rows, inner] = transA ? [a.dims[1]!, a.dims[0]!] : [a.dims[0]!, a.dims[1]!];
  const [innerB, columns] = transB ? [b.dims[1]!, b.dims[0]!] : [b.dims[0]!, b.dims[1]!];
  if (inner !== innerB) throw new Error(`Gemm of [${a.dims.join()}] and [${b.dims.join()}]`);
  return graph.apply(
    'Gemm',
    c === undefined ? [a, b] : [a, b, c],
    { dims: [rows, columns] },
    { transA: Number(transA), transB: Number(transB) },
  );
}

/** The same elements in another shape. At most one axis may have an unknown length. */
export function reshape(graph: Graph, x: Value, dims: readonly Dim[]): Value {
  const symbols = dims.filter((dim) => typeof dim === 'string');
  const target =
    symbols.length <= 1
      ? graph.ints(...dims.map((dim) => (typeof dim === 'number' ? dim : -1)))
      : graph.shape(dims);
  return graph.apply('Reshape', [x, target], { dims, type: x.type });
}

export function transpose(graph: Graph, x: Value, perm: readonly number[]): Value {
  return graph.apply(
    'Transpose',
    [x],
    { dims: perm.map((axis) => x.dims[axis]!), type: x.type },
    { perm },
  );
}

/** `x` repeated along its axes of length 1 until it has the shape of `like`. */
export function expandLike(graph: Graph, x: Value, like: Value): Value {
  const shape = graph.apply('Shape', [like], { dims: [like.dims.length], type: 'int64' });
  return graph.apply('Expand', [x, shape], { dims: like.dims, type: x.type });
}

/** Joins two or more values along an axis whose joint length is `length`. */
export function concat(graph: Graph, parts: readonly Value[], axis: number, length: Dim): Value {
  const dims = parts[0]!.dims.map((dim, i) => (i === axis ? length : dim));
  return graph.apply('Concat', parts, { dims, type: parts[0]!.type }, { axis });
}

/** Stacks values of one shape along a new first axis. */
export function stack(graph: Graph, parts: readonly Value[]): Value {
  const { dims, type } = parts[0]!;
  const lifted = parts.map((part) =>
    graph.apply('Unsqueeze', [part, graph.ints(0)], { dims: [1, ...dims], type }),
  );
  return concat(graph, lifted, 0, parts.length);
}

/** Elements `start` up to but not including `end` of one axis, given as int64 tensors [1]. */
export function slice(
  graph: Graph,
  x: Value,
  axis: number,
  [start, end, length]: readonly [start: Value, end: Value, length: Dim],
): Value {
  const dims = x.dims.map((dim, i) => (i === axis ? length : dim));
  return graph.apply('Slice', [x, start, end, graph.ints(axis)], { dims, type: x.type });
}

/** Rows of `x` along axis 0: result[i…] = x[indices[i…]]. */
export function gather(graph: Graph, x: Value, indices: Value): Value {
  const dims = [...indices.dims, ...x.dims.slice(1)];
  return graph.apply('Gather', [x, indices], { dims, type: x.type }, { axis: 0 });
}

/** One element of each row: result[…, j] = x[…, indices[…, j]] over the last axis. */
export function gatherElements(graph: Graph, x: Value, indices: Value): Value {
  return graph.apply(
    'GatherElements',
    [x, indices],
    { dims: indices.dims, type: x.type },
    { axis: x.dims.length - 1 },
  );
}

const reduction =
  (op: string) =>
  (graph: Graph, x: Value, axes: readonly number[]): Value => {
    const dims = x.dims.map((dim, axis) => (axes.includes(axis) ? 1 : dim));
    return graph.apply(op, [x, graph.ints(...axes)], { dims, type: x.type }, { keepdims: 1 });
  };

/** Sum over `axes`, which are kept with length 1. */
export const reduceSum = reduction('ReduceSum');
/** Mean over `axes`, which are kept with length 1. */
export const reduceMean = reduction('ReduceMean');

const overLastAxis =
  (op: string) =>
  (graph: Graph, x: Value): Value =>
    graph.apply(op, [x], { dims: x.dims }, { axis: -1 });

export const softmax = overLastAxis('Softmax');
export const logSoftmax = overLastAxis('LogSoftmax');

/** `x / sqrt(mean(x²) + eps) · scale` over the last axis. `scale` [D]. */
export function rmsNorm(graph: Graph, x: Value, scale: Value, epsilon: number): Value {
  return graph.apply(
    'RMSNormalization',
    [x, scale],
    { dims: x.dims },
    { axis: -1, epsilon: { float: epsilon } },
  );
}

/**
 * Rotates the pairs (i, i + D/2) of each head by an angle.
 *
 * @param x [B, T, heads · D]
 * @param cos [B, T, D/2] of each pair's angle, and `sin` likewise
 */
export function rotate(
  graph: Graph,
  x: Value,
  { cos, sin, heads }: { cos: Value; sin: Value; heads: number },
): Value {
  return graph.apply('RotaryEmbedding', [x, cos, sin], { dims: x.dims }, { num_heads: heads });
}
