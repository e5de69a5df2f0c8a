import { cast, type ElementType, scalar, type Tensor } from './tensor.js';

/** What a node of a traced loss may be: a tensor, or a Python value. */
export type Value =
  | Tensor
  | number
  | boolean
  | string
  | null
  | undefined
  | readonly Value[]
  | { readonly slice: readonly Value[] } // start, stop and step
  | { readonly ellipsis: true }
  | { readonly elementType: ElementType }
  | { readonly dict: Readonly<Record<string, Value>> };

/** One function of torch or of Python, with the names of its parameters. */
export interface Operation {
  readonly parameters: readonly string[];
  /** @throws {TypeError} for values of the wrong kind. @throws {RangeError} for shapes that do not fit. */
  readonly run: (given: readonly Value[]) => Value;
}

export function isTensor(value: Value): value is Tensor {
  return typeof value === 'object' && value !== null && 'needsGradient' in value;
}

export function isList(value: Value): value is readonly Value[] {
  return Array.isArray(value);
}

export function isNone(value: Value): value is undefined | null {
  return value === undefined || value === null;
}

/** A tensor, or a number as one. */
export function tensor(value: Value): Tensor {
  if (typeof value === 'number' || typeof value === 'boolean') return scalar(value);
  if (isTensor(value)) return value;
  throw new TypeError(`expected a tensor, found ${isNone(value) ? 'None' : typeof value}`);
}

export function float(value: Value): Tensor {
  return cast(tensor(value), 'float');
}

export function integer(value: Value): number {
  if (typeof value === 'number' && Number.isSafeInteger(value)) return value;
  throw new TypeError('expected an integer');
}

/** A list of integers, or one of them; None is undefined. */
export function integers(value: Value): number[] | undefined {
  if (isNone(value)) return undefined;
  return isList(value) ? value.map(integer) : [integer(value)];
}
