import type { Dim, Graph, Node, Value } from './graph.js';
import {
  add,
  div,
  exp,
  expandLike,
  gemm,
  greaterOrEqual,
  lessOrEqual,
  matmul,
  mul,
  neg,
  reduceMean,
  reduceSum,
  reshape,
  rotate,
  sqrt,
  sub,
  transpose,
  where,
} from './operators.js';

/**
 * The derivative of the loss by input `index` of `node`, in that input's shape, from `gradient`, the
 * derivative by the node's output.
 */
type GradientRule = (graph: Graph, node: Node, gradient: Value, index: number) => Value;

/** One rule per operator. Each is tested against finite differences. */
export const gradientRules: Readonly<Record<string, GradientRule>> = {
  Add: (graph, node, gradient, index) => unbroadcast(graph, gradient, node.inputs[index]!.dims),

  Sub: (graph, node, gradient, index) =>
    unbroadcast(graph, index === 0 ? gradient : neg(graph, gradient), node.inputs[index]!.dims),

  Mul: (graph, { inputs }, gradient, index) =>
    unbroadcast(graph, mul(graph, gradient, inputs[1 - index]!), inputs[index]!.dims),

  Div: (graph, { inputs: [a, b], outputs: [quotient] }, gradient, index) => {
    const byNumerator = div(graph, gradient, b!);
    if (index === 0) return unbroadcast(graph, byNumerator, a!.dims);
    return unbroadcast(graph, neg(graph, mul(graph, byNumerator, quotient!)), b!.dims);
  },

  Neg: (graph, _node, gradient) => neg(graph, gradient),
  Exp: (graph, { outputs: [y] }, gradient) => mul(graph, gradient, y!),
  Sqrt: (graph, { outputs: [y] }, gradient) => div(graph, gradient, mul(graph, graph.float(2), y!)),

  Sigmoid: (graph, { outputs: [y] }, gradient) =>
    mul(graph, gradient, mul(graph, y!, sub(graph, graph.float(1), y!))),

  // On a tie the first operand gets the whole gradient, so clip passes it at its bounds.
  Min: (graph, { inputs }, gradient, index) =>
    selected(graph, gradient, lessOrEqual(graph, inputs[0]!, inputs[1]!), inputs, index),
  Max: (graph, { inputs }, gradient, index) =>
    selected(graph, gradient, greaterOrEqual(graph, inputs[0]!, inputs[1]!), inputs, index),

  Where: (graph, { inputs: [condition, ...choices] }, gradient, index) =>
    selected(graph, gradient, condition!, choices, index - 1),

  MatMul: (graph, { inputs: [a, b] }, gradient, index) =>
    index === 0
      ? unbroadcast(graph, matmul(graph, gradient, swapLastTwo(graph, b!)), a!.dims)
      : unbroadcast(graph, matmul(graph, swapLastTwo(graph, a!), gradient), b!.dims),

  Gemm: (graph, { inputs: [a, b, c], attributes }, gradient, index) => {
    const transA = attributes['transA'] === 1;
    const transB = attributes['transB'] === 1;
    if (index === 2) return unbroadcast(graph, gradient, c!.dims);
    if (index === 0) {
      return transA
        ? gemm(graph, b!, gradient, { transA: transB, transB: true })
        : gemm(graph, gradient, b!, { transB: !transB });
    }
    return transB
      ? gemm(graph, gradient, a!, { transA: true, transB: transA })
      : gemm(graph, a!, gradient, { transA: !transA });
  },

  Reshape: (graph, { inputs: [x] }, gradient) => reshape(graph, gradient, x!.dims),

  Transpose: (graph, { attributes }, gradient) => {
    const perm = attributes['perm'] as readonly number[];
    const inverse = perm.map((_, axis) => perm.indexOf(axis));
    return transpose(graph, gradient, inverse);
  },

  ReduceSum: (graph, { inputs: [x] }, gradient) => expandLike(graph, gradient, x!),

  ReduceMean: (graph, { inputs: [x, axes] }, gradient) => {
    const count = reduceSum(graph, expandLike(graph, graph.float(1), x!), axesOf(graph, axes!));
    return expandLike(graph, div(graph, gradient, count), x!);
  },

  // y · (g - Σ y·g)
  Softmax: (graph, { outputs: [y] }, gradient) => {
    const weighted = mul(graph, gradient, y!);
    const total = reduceSum(graph, weighted, [y!.dims.length - 1]);
    return sub(graph, weighted, mul(graph, y!, total));
  },

  // g - softmax · Σ g
  LogSoftmax: (graph, { outputs: [y] }, gradient) => {
    const total = reduceSum(graph, gradient, [y!.dims.length - 1]);
    return sub(graph, gradient, mul(graph, exp(graph, y!), total));
  },

  // Gradients of rows taken more than once add up. ScatterElements, because ONNX Runtime's ScatterND
  // loses additions to the same row when several threads run.
  Gather: (graph, { inputs: [x, indices] }, gradient) => {
    const [, width] = x!.dims as [Dim, Dim];
    const rows = reshape(graph, gradient, ['rows of the gradient', width]);
    const column = reshape(graph, indices!, ['rows of the gradient', 1]);
    const everyColumn = graph.apply('Expand', [column, graph.shape([1, width])], {
      dims: rows.dims,
      type: 'int64',
    });
    return scatterAdd(graph, expandLike(graph, graph.float(0), x!), everyColumn, rows, 0);
  },

  GatherElements: (graph, { inputs: [x, indices] }, gradient) =>
    scatterAdd(
      graph,
      expandLike(graph, graph.float(0), x!),
      indices!,
      gradient,
      x!.dims.length - 1,
    ),

  // y = x·r·s with r = 1/sqrt(mean(x²) + eps): dx = r·(u - x·r²·mean(u·x)) with u = g·s, ds = Σ g·x·r
  RMSNormalization: (graph, { inputs: [x, scale], attributes }, gradient, index) => {
    const { float: epsilon } = attributes['epsilon'] as { float: number };
    const last = [x!.dims.length - 1];
    const meanSquare = reduceMean(graph, mul(graph, x!, x!), last);
    const root = sqrt(graph, add(graph, meanSquare, graph.float(epsilon)));
    const normalized = div(graph, x!, root);
    if (index === 1) return unbroadcast(graph, mul(graph, gradient, normalized), scale!.dims);
    const scaled = mul(graph, gradient, scale!);
    const along = reduceMean(graph, mul(graph, scaled, normalized), last);
    return div(graph, sub(graph, scaled, mul(graph, normalized, along)), root);
  },

  // The derivative of a rotation is the inverse rotation.
  RotaryEmbedding: (graph, { inputs: [, cos, sin], attributes }, gradient) =>
    rotate(graph, gradient, {
      cos: cos!,
      sin: neg(graph, sin!),
      heads: attributes['num_heads'] as number,
    }),
};

/** Sums a gradient over the axes along which its value was broadcast. */
function unbroadcast(graph: Graph, gradient: Value, dims: readonly Dim[]): Value {
  const extra = gradient.dims.length - dims.length;
  const axes = gradient.dims.flatMap((dim, axis) => {
    const own = axis < extra ? undefined : dims[axis - extra];
    return own === undefined || (own === 1 && dim !== 1) ? [axis] : [];
  });
  const summed = axes.length === 0 ? gradient : reduceSum(graph, gradient, axes);
  return extra === 0 ? summed : reshape(graph, summed, dims);
}

/** The gradient where `condition` chose this operand, 0 elsewhere. */
function selected(
  graph: Graph,
  gradient: Value,
  condition: Value,
  operands: readonly Value[],
  index: number,
): Value {
  const zero = graph.float(0);
  const [a, b] = index === 0 ? [gradient, zero] : [zero, gradient];
  return unbroadcast(graph, where(graph, condition, a, b), operands[index]!.dims);
}

function swapLastTwo(graph: Graph, x: Value): Value {
  const perm = x.dims.map((_, axis) => axis);
  [perm[perm.length - 2], perm[perm.length - 1]] = [perm.length - 1, perm.length - 2];
  return transpose(graph, x, perm);
}

function scatterAdd(
  graph: Graph,
  into: Value,
  indices: Value,
  updates: Value,
  axis: number,
): Value {
  return graph.apply(
    'ScatterElements',
    [into, indices, updates],
    { dims: into.dims },
    { axis, reduction: 'add' },
  );
}

/** The axes that a reduction was built with. */
function axesOf(graph: Graph, axes: Value): number[] {
  const constant = graph.constants.find(({ value }) => value.name === axes.name)!;
  return Array.from(constant.data, Number);
}
