import {
  axisOf,
  checkedSize,
  gathered,
  placesOf,
  reshaped,
  sizeOf,
  type Tensor,
} from './tensor.js';
import { isList, isTensor, type Value } from './values.js';

/**
 * Python's `object[index]`, of a tensor or a list: integers, slices, None, an ellipsis, and for the first dimension
 * a tensor of booleans or of integers.
 *
 * @throws {RangeError} for an index beyond the object. @throws {TypeError} for another kind of index.
 */
export function indexed(object: Value, index: Value): Value {
  if (isList(object)) return ofList(object, index);
  if (!isTensor(object)) throw new TypeError('only tensors and lists have an index');
  if (isTensor(index)) return picked(object, index);
  const parts = isList(index) ? index : [index];
  const used = parts.filter((part) => part !== null && !isEllipsis(part)).length;
  const whole = Array.from({ length: object.shape.length - used }, () => everything);
  const hasEllipsis = parts.some(isEllipsis);
  const all = hasEllipsis
    ? parts.flatMap((part) => (isEllipsis(part) ? whole : [part]))
    : [...parts, ...whole];

  const strides = object.shape.map((_, i) => sizeOf(object.shape.slice(i + 1)));
  const shape: number[] = [];
  const steps: number[] = [];
  let start = 0;
  let axis = 0;
  for (const part of all) {
    if (part === null) {
      shape.push(1);
      steps.push(0);
      continue;
    }
    const length = object.shape[axis];
    if (length === undefined)
      throw new RangeError(`too many indices for shape [${object.shape.join()}]`);
    const stride = strides[axis]!;
    if (typeof part === 'number') start += stride * placeIn(length, part);
    else {
      const range = rangeOf(part, length);
      start += stride * range.first;
      shape.push(range.count);
      steps.push(stride * range.step);
    }
    axis += 1;
  }
  return gathered(object, shape, placesOf(shape, steps, start));
}

const everything: Value = { slice: [null, null, null] };

function isEllipsis(value: Value): boolean {
  return typeof value === 'object' && value !== null && 'ellipsis' in value;
}

function ofList(list: readonly Value[], index: Value): Value {
  if (typeof index === 'number') return list[placeIn(list.length, index)];
  const { first, count, step } = rangeOf(index, list.length);
  return Array.from({ length: count }, (_, i) => list[first + i * step]);
}

function placeIn(length: number, index: number): number {
  const place = index < 0 ? index + length : index;
  if (Number.isInteger(place) && place >= 0 && place < length) return place;
  throw new RangeError(`index ${index} of ${length} elements`);
}

/** A slice of `length` elements, as Python resolves it. Steps are positive, as torch demands. */
function rangeOf(part: Value, length: number): { first: number; count: number; step: number } {
  if (typeof part !== 'object' || part === null || isList(part) || !('slice' in part)) {
    throw new TypeError(
      'an index is an integer, a slice, None, an ellipsis, or one tensor by itself',
    );
  }
  const [start, stop, step] = part.slice.map((bound, i) => bound ?? [0, length, 1][i]);
  if (
    typeof start !== 'number' ||
    typeof stop !== 'number' ||
    typeof step !== 'number' ||
    step < 1
  ) {
    throw new TypeError('the bounds of a slice are integers, and its step is at least 1');
  }
  const clip = (bound: number) => Math.min(Math.max(bound < 0 ? bound + length : bound, 0), length);
  const first = clip(start);
  return { first, count: Math.max(0, Math.ceil((clip(stop) - first) / step)), step };
}

/** Rows by a tensor: those where it is true, or those that it numbers. */
function picked(object: Tensor, index: Tensor): Tensor {
  if (index.type === 'float') throw new TypeError('an index is a tensor of booleans or integers');
  if (index.type === 'bool' && index.shape.join() === object.shape.join()) {
    return rows(reshaped(object, [-1]), trueAt(index));
  }
  if (index.shape.length !== 1) throw new RangeError('an index tensor has one dimension');
  const length = object.shape[axisOf(object.shape, 0)]!;
  if (index.type === 'int')
    return rows(
      object,
      Array.from(index.data, (row) => placeIn(length, row)),
    );
  if (index.shape[0] === length) return rows(object, trueAt(index));
  throw new RangeError(`a mask of ${index.shape[0]} for ${length} elements`);
}

const trueAt = ({ data }: Tensor) => Array.from(data.keys()).filter((i) => data[i] !== 0);

function rows(object: Tensor, chosen: readonly number[]): Tensor {
  checkedSize([chosen.length, ...object.shape.slice(1)]);
  const inner = sizeOf(object.shape.slice(1));
  const from = chosen.flatMap((row) => Array.from({ length: inner }, (_, i) => row * inner + i));
  return gathered(object, [chosen.length, ...object.shape.slice(1)], Int32Array.from(from));
}
