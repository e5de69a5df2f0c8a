import {
  add,
  deviation,
  div,
  elementwiseOperations,
  exp,
  log,
  maximum,
  minimum,
  mul,
  sub,
} from './elementwise.js';
import { indexed } from './indexing.js';
import {
  axisOf,
  cast,
  concatenated,
  cumulated,
  detached,
  gathered,
  largest,
  placesOf,
  reduction,
  reshaped,
  scalar,
  sizeOf,
  summed,
  type Tensor,
} from './tensor.js';
import {
  float,
  integer,
  integers,
  isList,
  isNone,
  isTensor,
  type Operation,
  tensor,
  type Value,
} from './values.js';

const overAxes = ['input', 'dim', 'keepdim'];

const sum: Operation = {
  parameters: overAxes,
  run: ([x, dim, keepdim]) =>
    summed(tensor(x), reduction(tensor(x), integers(dim), keepdim === true)),
};

const mean: Operation = {
  parameters: overAxes,
  run([x, dim, keepdim]) {
    const over = reduction(float(x), integers(dim), keepdim === true);
    return div.run([summed(float(x), over), over.count]);
  },
};

const amax: Operation = {
  parameters: overAxes,
  run: ([x, dim, keepdim]) =>
    largest(tensor(x), reduction(tensor(x), integers(dim), keepdim === true)),
};

const amin: Operation = {
  parameters: overAxes,
  run: ([x, dim, keepdim]) => mul.run([amax.run([mul.run([x, -1]), dim, keepdim]), -1]),
};

/** `max` and `min` are of all elements, or of two tensors; along a dim torch also returns indices. */
const extreme = (ofAll: Operation, ofTwo: Operation): Operation => ({
  parameters: ['input', 'other'],
  run([x, other]) {
    if (isNone(other)) return ofAll.run([x]);
    if (isTensor(other)) return ofTwo.run([x, other]);
    throw new TypeError('max and min along a dim are not served; use amax or amin');
  },
});

const logSumExp: Operation = {
  parameters: overAxes,
  run([x, dim, keepdim]) {
    const input = float(x);
    const axes = integers(dim);
    const peak = detached(largest(input, reduction(input, axes, true)));
    const total = sum.run([exp.run([sub.run([input, peak])]), axes, true]);
    const result = tensor(add.run([log.run([total]), peak]));
    return reshaped(result, reduction(input, axes, keepdim === true).shape);
  },
};

const logSoftmax: Operation = {
  parameters: ['input', 'dim'],
  run: ([x, dim]) => sub.run([float(x), logSumExp.run([x, dim, true])]),
};

const variance: Operation = {
  parameters: ['input', 'dim', 'unbiased', 'keepdim', 'correction'],
  run([x, dim, unbiased, keepdim, correction]) {
    const gap = sub.run([float(x), mean.run([x, dim, true])]);
    const over = reduction(float(x), integers(dim), keepdim === true);
    const lost = isNone(correction) ? Number(unbiased !== false) : integer(correction);
    return div.run([summed(tensor(mul.run([gap, gap])), over), over.count - lost]);
  },
};

const transpose: Operation = {
  parameters: ['input', 'dim0', 'dim1'],
  run([x, first, second]) {
    const input = tensor(x);
    const a = axisOf(input.shape, integer(first));
    const b = axisOf(input.shape, integer(second));
    const strides = input.shape.map((_, i) => sizeOf(input.shape.slice(i + 1)));
    const swap = (list: readonly number[]) => list.with(a, list[b]!).with(b, list[a]!);
    return gathered(input, swap(input.shape), placesOf(swap(input.shape), swap(strides), 0));
  },
};

const reshape: Operation = {
  parameters: ['input', 'shape'],
  run: ([x, shape]) => reshaped(tensor(x), integers(shape) ?? []),
};

const unsqueeze: Operation = {
  parameters: ['input', 'dim'],
  run([x, dim]) {
    const { shape } = tensor(x);
    return reshaped(tensor(x), shape.toSpliced(axisOf([...shape, 1], integer(dim)), 0, 1));
  },
};

const squeeze: Operation = {
  parameters: ['input', 'dim'],
  run([x, dim]) {
    const { shape } = tensor(x);
    const axes = integers(dim)?.map((axis) => axisOf(shape, axis)) ?? [...shape.keys()];
    return reshaped(
      tensor(x),
      shape.filter((axis, i) => axis !== 1 || !axes.includes(i)),
    );
  },
};

const matmul: Operation = {
  parameters: ['input', 'other'],
  run([a, b]) {
    const [x, y] = [float(a), float(b)];
    if (x.shape.length > 2 || y.shape.length > 2)
      throw new RangeError('matmul of more than 2 dims');
    const left = x.shape.length === 1 ? reshaped(x, [1, -1]) : x;
    const right = y.shape.length === 1 ? reshaped(y, [-1, 1]) : y;
    const product = sum.run([mul.run([unsqueeze.run([left, 2]), unsqueeze.run([right, 0])]), 1]);
    const shape = [left.shape[0]!, right.shape[1]!];
    return reshaped(tensor(product), [
      ...(x.shape.length === 1 ? [] : [shape[0]!]),
      ...(y.shape.length === 1 ? [] : [shape[1]!]),
    ]);
  },
};

/** Python's `getattr`, of a tensor. */
const attribute: Operation = {
  parameters: ['object', 'name'],
  run([object, name]) {
    const { shape, type } = tensor(object);
    if (name === 'shape') return shape;
    if (name === 'ndim') return shape.length;
    if (name === 'dtype') return { elementType: type };
    if (name === 'T' && shape.length === 2) return transpose.run([object, 0, 1]);
    throw new TypeError(`the attribute ${JSON.stringify(name)} of a tensor is not served`);
  },
};

const size: Operation = {
  parameters: ['input', 'dim'],
  run([x, dim]) {
    const { shape } = tensor(x);
    return isNone(dim) ? shape : shape[axisOf(shape, integer(dim))];
  },
};

const listOf = (value: Value): Tensor[] => {
  if (isList(value) && value.length > 0) return value.map(tensor);
  throw new TypeError('expected a list of tensors');
};

/** The functions of torch, its tensors and Python's operators that a custom loss may use, by name. */
export const operations: Readonly<Record<string, Operation>> = {
  ...elementwiseOperations,
  sum,
  mean,
  amax,
  amin,
  max: extreme(amax, maximum),
  min: extreme(amin, minimum),
  var: variance,
  std: { ...variance, run: (given) => deviation.run([variance.run(given)]) },
  logsumexp: logSumExp,
  log_softmax: logSoftmax,
  softmax: { ...logSoftmax, run: (given) => exp.run([logSoftmax.run(given)]) },
  cumsum: { parameters: ['input', 'dim'], run: ([x, dim]) => cumulated(tensor(x), integer(dim)) },
  any: { parameters: ['input'], run: ([x]) => scalar(tensor(x).data.some((value) => value !== 0)) },
  all: {
    parameters: ['input'],
    run: ([x]) => scalar(tensor(x).data.every((value) => value !== 0)),
  },
  count_nonzero: {
    parameters: ['input'],
    run: ([x]) => scalar(tensor(x).data.filter((value) => value !== 0).length),
  },
  dot: matmul,
  matmul,
  mm: matmul,
  mv: matmul,
  cat: {
    parameters: ['tensors', 'dim'],
    run: ([parts, dim]) => concatenated(listOf(parts), integer(dim ?? 0)),
  },
  stack: {
    parameters: ['tensors', 'dim'],
    run: ([parts, dim = 0]) =>
      concatenated(
        listOf(parts).map((part) => tensor(unsqueeze.run([part, dim]))),
        integer(dim),
      ),
  },
  reshape,
  view: reshape,
  flatten: { parameters: ['input'], run: ([x]) => reshaped(tensor(x), [-1]) },
  unsqueeze,
  squeeze,
  transpose,
  t: { parameters: ['input'], run: ([x]) => transpose.run([x, 0, 1]) },
  size,
  numel: { parameters: ['input'], run: ([x]) => tensor(x).data.length },
  dim: { parameters: ['input'], run: ([x]) => tensor(x).shape.length },
  to: {
    parameters: ['input', 'dtype'],
    run([x, type]) {
      const isType = typeof type === 'object' && type !== null && 'elementType' in type;
      return isType ? cast(tensor(x), type.elementType) : tensor(x); // a device: there is one
    },
  },
  getattr: attribute,
  getitem: { parameters: ['object', 'index'], run: ([object, index]) => indexed(object, index) },
};
