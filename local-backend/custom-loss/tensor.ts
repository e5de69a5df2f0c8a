/**
 * Small dense tensors with reverse-mode derivatives, for losses that arrive as data. They follow torch: shapes
 * broadcast from the last axis, bool and int become float where one operand is. Elements are doubles.
 */

export type ElementType = 'bool' | 'int' | 'float';

export interface Tensor {
  readonly type: ElementType;
  readonly shape: readonly number[];
  readonly data: Float64Array; // row-major
  readonly needsGradient: boolean;
  readonly origin?: Origin; // absent: a constant, or the variable itself
}

/** How a tensor was computed. */
interface Origin {
  readonly inputs: readonly Tensor[];
  /** Adds to the gradients of the inputs, each undefined if its input needs none, what that of the result says. */
  readonly pull: (gradient: Float64Array, into: readonly (Float64Array | undefined)[]) => void;
}

/** More elements than any loss of one datum needs: what repeats itself must not fill the memory. */
const maxElements = 2 ** 22;

export const sizeOf = (shape: readonly number[]) => shape.reduce((size, axis) => size * axis, 1);

export function constant(
  shape: readonly number[],
  data: ArrayLike<number>,
  type: ElementType = 'float',
): Tensor {
  return { type, shape, data: Float64Array.from(data), needsGradient: false };
}

/** What a loss is differentiated by. */
export function variable(shape: readonly number[], data: ArrayLike<number>): Tensor {
  return { ...constant(shape, data), needsGradient: true };
}

export function scalar(value: number | boolean): Tensor {
  if (typeof value === 'boolean') return constant([], [Number(value)], 'bool');
  return constant([], [value], Number.isInteger(value) ? 'int' : 'float');
}

/** The same elements without a way back: no gradient flows through them. */
export function detached({ type, shape, data }: Tensor): Tensor {
  return { type, shape, data, needsGradient: false };
}

/** The elements as another type, as torch casts them. */
export function cast(x: Tensor, type: ElementType): Tensor {
  if (x.type === type) return x;
  if (type === 'float') return { ...x, type };
  const convert = type === 'bool' ? (value: number) => Number(value !== 0) : Math.trunc;
  return { ...detached(x), type, data: x.data.map(convert) };
}

/** The derivative of a tensor with one element by a variable: zeros where it does not depend on it. */
export function derivative(of: Tensor, by: Tensor): Float64Array {
  const gradients = new Map<Tensor, Float64Array>([[of, Float64Array.of(1)]]);
  for (const tensor of ancestors(of).reverse()) {
    const gradient = gradients.get(tensor);
    if (gradient === undefined || tensor.origin === undefined) continue;
    const into = tensor.origin.inputs.map((input) => {
      if (!input.needsGradient) return undefined;
      const known = gradients.get(input) ?? new Float64Array(input.data.length);
      gradients.set(input, known);
      return known;
    });
    tensor.origin.pull(gradient, into);
  }
  return gradients.get(by) ?? new Float64Array(by.data.length);
}

/** A tensor and all that it was computed from and that needs a gradient, each after its own inputs. */
function ancestors(of: Tensor): Tensor[] {
  const ordered: Tensor[] = [];
  const seen = new Set<Tensor>();
  const visit = (tensor: Tensor): void => {
    if (seen.has(tensor) || !tensor.needsGradient) return;
    seen.add(tensor);
    tensor.origin?.inputs.forEach(visit);
    ordered.push(tensor);
  };
  visit(of);
  return ordered;
}

function computed(
  type: ElementType,
  shape: readonly number[],
  data: Float64Array,
  inputs: readonly Tensor[],
  pull: Origin['pull'],
): Tensor {
  const needsGradient = type === 'float' && inputs.some((input) => input.needsGradient);
  return { type, shape, data, needsGradient, ...(needsGradient && { origin: { inputs, pull } }) };
}

/**
 * Computes each element from the elements at its place, after broadcasting.
 *
 * @param partials the derivative by each input, a function of the elements; absent: there is none.
 */
export function elementwise(
  type: ElementType,
  inputs: readonly Tensor[],
  value: (...x: number[]) => number,
  partials: readonly (((...x: number[]) => number) | undefined)[] = [],
): Tensor {
  const shape = inputs.map((input) => input.shape).reduce(broadcastShape);
  const size = checkedSize(shape);
  const places = inputs.map((input) => broadcastPlaces(input.shape, shape));
  const at = (i: number) => inputs.map(({ data }, k) => data[places[k]![i]!]!);
  const data = new Float64Array(size);
  for (let i = 0; i < size; i++) data[i] = value(...at(i));
  return computed(type, shape, data, inputs, (gradient, into) => {
    into.forEach((sums, k) => {
      const partial = partials[k];
      if (sums === undefined || partial === undefined) return;
      for (let i = 0; i < size; i++) {
        if (gradient[i] !== 0) sums[places[k]![i]!]! += gradient[i]! * partial(...at(i));
      }
    });
  });
}

/** Element i of the result is element `from[i]` of the input: slices, transposes, repeats. */
export function gathered(x: Tensor, shape: readonly number[], from: Int32Array): Tensor {
  const data = Float64Array.from(from, (place) => x.data[place]!);
  return computed(x.type, shape, data, [x], (gradient, [sums]) => {
    from.forEach((place, i) => (sums![place]! += gradient[i]!));
  });
}

/** The elements in another shape of the same size. @throws {RangeError} for another size. */
export function reshaped(x: Tensor, shape: readonly number[]): Tensor {
  const known = shape.filter((axis) => axis !== -1);
  const full = shape.map((axis) => (axis === -1 ? x.data.length / sizeOf(known) : axis));
  const isShape = full.every((axis) => Number.isInteger(axis) && axis >= 0);
  if (known.length + 1 < shape.length || !isShape || sizeOf(full) !== x.data.length) {
    throw new RangeError(`shape [${x.shape.join()}] cannot become [${shape.join()}]`);
  }
  return computed(x.type, full, x.data, [x], (gradient, [sums]) => {
    gradient.forEach((value, i) => (sums![i]! += value));
  });
}

/** Tensors of equal shapes, except along `axis`, one after another. @throws {RangeError} for other shapes. */
export function concatenated(parts: readonly Tensor[], axis: number): Tensor {
  const [first] = parts;
  const along = axisOf(first!.shape, axis);
  const length = parts.reduce((sum, { shape }) => sum + shape[along]!, 0);
  const shape = first!.shape.with(along, length);
  for (const part of parts) {
    if (
      part.shape.length !== shape.length ||
      part.shape.with(along, length).join() !== shape.join()
    ) {
      throw new RangeError(`[${part.shape.join()}] does not fit [${first!.shape.join()}] in cat`);
    }
  }
  const data = new Float64Array(checkedSize(shape));
  const inner = sizeOf(shape.slice(along + 1));
  let before = 0;
  const places = parts.map((part) => {
    const width = part.shape[along]! * inner;
    const start = before;
    before += width;
    return Int32Array.from(part.data, (_, i) => {
      const row = Math.floor(i / width);
      return row * length * inner + start + (i % width);
    });
  });
  parts.forEach((part, k) => {
    part.data.forEach((value, i) => (data[places[k]![i]!] = value));
  });
  const type = parts.map((part) => part.type).reduce(promoted);
  return computed(type, shape, data, parts, (gradient, into) => {
    into.forEach((sums, k) => {
      if (sums !== undefined) places[k]!.forEach((place, i) => (sums[i]! += gradient[place]!));
    });
  });
}

/** Which elements of a tensor fall together when `axes` are reduced. */
interface Reduction {
  readonly shape: readonly number[]; // of the result
  readonly into: Int32Array; // for each element, its place in the result
  readonly count: number; // elements that fall together
}

/** @param axes undefined: all of them. @throws {RangeError} for an axis that the tensor does not have. */
export function reduction(
  { shape, data }: Tensor,
  axes: readonly number[] | undefined,
  keepsAxes: boolean,
): Reduction {
  const reduced = new Set(axes?.map((axis) => axisOf(shape, axis)) ?? shape.keys());
  const kept = shape.map((axis, i) => (reduced.has(i) ? 1 : axis));
  const into = broadcastPlaces(kept, shape);
  const result = keepsAxes ? kept : shape.filter((_, i) => !reduced.has(i));
  return { shape: result, into, count: data.length / sizeOf(kept) };
}

export function summed(x: Tensor, { shape, into }: Reduction): Tensor {
  const data = new Float64Array(sizeOf(shape));
  x.data.forEach((value, i) => (data[into[i]!]! += value));
  const type = x.type === 'bool' ? 'int' : x.type;
  return computed(type, shape, data, [x], (gradient, [sums]) => {
    into.forEach((place, i) => (sums![i]! += gradient[place]!));
  });
}

/** The largest elements; the gradient is shared evenly among equal ones. @throws {RangeError} for no elements. */
export function largest(x: Tensor, { shape, into }: Reduction): Tensor {
  if (x.data.length === 0) throw new RangeError('the largest of no elements');
  const data = new Float64Array(sizeOf(shape)).fill(-Infinity);
  x.data.forEach((value, i) => (data[into[i]!] = Math.max(data[into[i]!]!, value)));
  const ties = new Float64Array(data.length);
  x.data.forEach((value, i) => value === data[into[i]!] && ties[into[i]!]!++);
  return computed(x.type, shape, data, [x], (gradient, [sums]) => {
    into.forEach((place, i) => {
      if (x.data[i] === data[place]) sums![i]! += gradient[place]! / ties[place]!;
    });
  });
}

/** Sums of each element and all before it along an axis. */
export function cumulated(x: Tensor, axis: number): Tensor {
  const along = axisOf(x.shape, axis);
  const inner = sizeOf(x.shape.slice(along + 1));
  const length = x.shape[along]!;
  const isFirst = (i: number) => Math.floor(i / inner) % length === 0;
  const data = x.data.slice();
  for (let i = 0; i < data.length; i++) if (!isFirst(i)) data[i]! += data[i - inner]!;
  return computed(x.type === 'bool' ? 'int' : x.type, x.shape, data, [x], (gradient, [sums]) => {
    const after = gradient.slice();
    for (let i = after.length - 1; i >= 0; i--) if (!isFirst(i)) after[i - inner]! += after[i]!;
    after.forEach((value, i) => (sums![i]! += value));
  });
}

/** Index of an axis, counted from the end if it is negative. @throws {RangeError} if there is none. */
export function axisOf(shape: readonly number[], axis: number): number {
  const index = axis < 0 ? axis + shape.length : axis;
  if (shape[index] !== undefined) return index;
  throw new RangeError(`there is no dimension ${axis} in shape [${shape.join()}]`);
}

/** The type of a result of both: float before int before bool. */
export function promoted(a: ElementType, b: ElementType): ElementType {
  if (a === 'float' || b === 'float') return 'float';
  return a === 'int' || b === 'int' ? 'int' : 'bool';
}

function broadcastShape(a: readonly number[], b: readonly number[]): readonly number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, i) => {
    const left = a[i - rank + a.length] ?? 1;
    const right = b[i - rank + b.length] ?? 1;
    if (left === right || right === 1) return left;
    if (left === 1) return right;
    throw new RangeError(`shapes [${a.join()}] and [${b.join()}] do not broadcast`);
  });
}

/** For each element of shape `to`, the place of the element of shape `from` that stands there. */
function broadcastPlaces(from: readonly number[], to: readonly number[]): Int32Array {
  const strides = new Array<number>(to.length).fill(0);
  let stride = 1;
  for (let i = from.length - 1; i >= 0; i--) {
    if (from[i] !== 1) strides[i + to.length - from.length] = stride;
    stride *= from[i]!;
  }
  return placesOf(to, strides, 0);
}

/** For each element of a shape, its place: a start, and a stride along each axis. */
export function placesOf(
  shape: readonly number[],
  strides: readonly number[],
  start: number,
): Int32Array {
  const places = new Int32Array(checkedSize(shape));
  const at = new Array<number>(shape.length).fill(0);
  let place = start;
  for (let i = 0; i < places.length; i++) {
    places[i] = place;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      place += strides[axis]!;
      if (++at[axis]! < shape[axis]!) break;
      place -= strides[axis]! * shape[axis]!;
      at[axis] = 0;
    }
  }
  return places;
}

/** @throws {RangeError} for too many elements. */
export function checkedSize(shape: readonly number[]): number {
  const size = sizeOf(shape);
  if (size <= maxElements) return size;
  throw new RangeError(
    `a tensor of shape [${shape.join()}] is too large; at most ${maxElements} elements`,
  );
}
