import { cast, detached, elementwise, type ElementType, promoted } from './tensor.js';
import { float, isNone, type Operation, tensor } from './values.js';

const unary = (value: (x: number) => number, partial?: (x: number) => number): Operation => ({
  parameters: ['input'],
  run: ([x]) => elementwise('float', [float(x)], value, [partial]),
});

const test = (isTrue: (x: number) => boolean): Operation => ({
  parameters: ['input'],
  run: ([x]) => elementwise('bool', [tensor(x)], (value) => Number(isTrue(value))),
});

const comparison = (isTrue: (a: number, b: number) => boolean): Operation => ({
  parameters: ['input', 'other'],
  run: ([a, b]) => elementwise('bool', [tensor(a), tensor(b)], (x, y) => Number(isTrue(x, y))),
});

/** Of two masks, `add`, `mul`, `maximum` and `minimum` make another mask, as torch does: `or`, `and`, `or` and `and`. */
const same = (type: ElementType) => type;

const arithmetic = (
  value: (a: number, b: number) => number,
  byA: (a: number, b: number) => number,
  byB: (a: number, b: number) => number,
  typeOf: (type: ElementType) => ElementType = (type) => (type === 'bool' ? 'int' : type),
): Operation => ({
  parameters: ['input', 'other'],
  run([a, b]) {
    const [x, y] = [tensor(a), tensor(b)];
    const type = typeOf(promoted(x.type, y.type));
    const isTrue = (p: number, q: number) => Number(value(p, q) !== 0);
    return elementwise(type, [x, y], type === 'bool' ? isTrue : value, [byA, byB]);
  },
});

const casting = (type: ElementType): Operation => ({
  parameters: ['input'],
  run: ([x]) => cast(tensor(x), type),
});

const filled = (value: number): Operation => ({
  parameters: ['input'],
  run: ([x]) => elementwise(tensor(x).type, [detached(tensor(x))], () => value),
});

const none = () => 0;
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
const softplus = (x: number) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
/** 1 for the greater of two, and half for each of two equal ones, as in torch. */
const share = (a: number, b: number) => (a === b ? 0.5 : Number(a > b));

export const add = arithmetic(
  (a, b) => a + b,
  () => 1,
  () => 1,
  same,
);
export const sub = arithmetic(
  (a, b) => a - b,
  () => 1,
  () => -1,
);
export const mul = arithmetic(
  (a, b) => a * b,
  (_, b) => b,
  (a) => a,
  same,
);
export const div = arithmetic(
  (a, b) => a / b,
  (_, b) => 1 / b,
  (a, b) => -a / (b * b),
  () => 'float',
);
export const exp = unary(Math.exp, Math.exp);
export const log = unary(Math.log, (x) => 1 / x);
export const sqrt = unary(Math.sqrt, (x) => 0.5 / Math.sqrt(x));
/** Of a variance. Unlike `sqrt`, and as in torch, its slope at 0 is 0. */
export const deviation = unary(Math.sqrt, (x) => (x === 0 ? 0 : 0.5 / Math.sqrt(x)));
export const maximum = arithmetic(Math.max, share, (a, b) => share(b, a), same);
export const minimum = arithmetic(Math.min, (a, b) => share(b, a), share, same);

const logSigmoid = unary(
  (x) => -softplus(-x),
  (x) => sigmoid(-x),
);
const pow = arithmetic(
  (a, b) => a ** b,
  (a, b) => (b === 0 ? 0 : b * a ** (b - 1)),
  (a, b) => (a === 0 ? 0 : a ** b * Math.log(a)),
);
const floorDivision = arithmetic((a, b) => Math.floor(a / b), none, none);
const remainder = arithmetic(
  (a, b) => a - b * Math.floor(a / b),
  () => 1,
  (a, b) => -Math.floor(a / b),
);

export const where: Operation = {
  parameters: ['condition', 'input', 'other'],
  run([condition, a, b]) {
    const [x, y] = [tensor(a), tensor(b)];
    return elementwise(
      promoted(x.type, y.type),
      [tensor(condition), x, y],
      (isTrue, left, right) => (isTrue === 0 ? right : left),
      [undefined, (isTrue) => Number(isTrue !== 0), (isTrue) => Number(isTrue === 0)],
    );
  },
};

/** A bound that is None does not count. Where the bounds cross, the upper one counts, as in torch. */
const clamp: Operation = {
  parameters: ['input', 'min', 'max'],
  run([x, low, high]) {
    const raised = isNone(low) ? tensor(x) : where.run([comparisons.lt.run([x, low]), low, x]);
    return isNone(high) ? raised : where.run([comparisons.gt.run([raised, high]), high, raised]);
  },
};

const comparisons = {
  eq: comparison((a, b) => a === b),
  ne: comparison((a, b) => a !== b),
  lt: comparison((a, b) => a < b),
  le: comparison((a, b) => a <= b),
  gt: comparison((a, b) => a > b),
  ge: comparison((a, b) => a >= b),
};
const logical = {
  and: comparison((a, b) => a !== 0 && b !== 0),
  or: comparison((a, b) => a !== 0 || b !== 0),
  xor: comparison((a, b) => (a !== 0) !== (b !== 0)),
  not: test((x) => x === 0),
};

/** The functions that work element by element. */
export const elementwiseOperations: Readonly<Record<string, Operation>> = {
  add,
  sub,
  subtract: sub,
  mul,
  multiply: mul,
  div,
  divide: div,
  truediv: div,
  true_divide: div,
  floordiv: floorDivision,
  floor_divide: floorDivision,
  mod: remainder,
  remainder,
  pow,
  maximum,
  minimum,
  ...comparisons,
  and_: logical.and,
  logical_and: logical.and,
  or_: logical.or,
  logical_or: logical.or,
  xor: logical.xor,
  logical_xor: logical.xor,
  invert: logical.not,
  logical_not: logical.not,
  isfinite: test(Number.isFinite),
  isnan: test(Number.isNaN),
  neg: { parameters: ['input'], run: ([x]) => mul.run([x, -1]) },
  pos: { parameters: ['input'], run: ([x]) => tensor(x) },
  exp,
  expm1: unary(Math.expm1, Math.exp),
  log,
  log1p: unary(Math.log1p, (x) => 1 / (1 + x)),
  sqrt,
  rsqrt: unary(
    (x) => 1 / Math.sqrt(x),
    (x) => -0.5 / (x * Math.sqrt(x)),
  ),
  square: { parameters: ['input'], run: ([x]) => mul.run([x, x]) },
  reciprocal: { parameters: ['input'], run: ([x]) => div.run([1, x]) },
  abs: unary(Math.abs, Math.sign),
  sign: unary(Math.sign),
  sigmoid: unary(sigmoid, (x) => sigmoid(x) * sigmoid(-x)),
  logsigmoid: logSigmoid,
  softplus: unary(softplus, sigmoid),
  log_sigmoid: logSigmoid,
  tanh: unary(Math.tanh, (x) => 1 - Math.tanh(x) ** 2),
  relu: unary(
    (x) => Math.max(x, 0),
    (x) => Number(x > 0),
  ),
  clamp,
  clip: clamp,
  clamp_min: { parameters: ['input', 'min'], run: ([x, low]) => clamp.run([x, low]) },
  clamp_max: { parameters: ['input', 'max'], run: ([x, high]) => clamp.run([x, null, high]) },
  where,
  masked_fill: {
    parameters: ['input', 'mask', 'value'],
    run: ([x, mask, value]) => where.run([mask, value, x]),
  },
  zeros_like: filled(0),
  ones_like: filled(1),
  full_like: {
    parameters: ['input', 'fill_value'],
    run: ([x, value]) => add.run([filled(0).run([x]), value]),
  },
  detach: { parameters: ['input'], run: ([x]) => detached(tensor(x)) },
  clone: { parameters: ['input'], run: ([x]) => tensor(x) },
  contiguous: { parameters: ['input'], run: ([x]) => tensor(x) },
  float: casting('float'),
  double: casting('float'),
  int: casting('int'),
  long: casting('int'),
  bool: casting('bool'),
  type_as: {
    parameters: ['input', 'other'],
    run: ([x, other]) => cast(tensor(x), tensor(other).type),
  },
};
