import { print, type Expression, type Operator } from './parser.js';
import * as rational from '../rational.js';
import type { Rational } from '../rational.js';

/**
 * All expressions that differ only in the order and grouping of a sum or product: `7+3-(21-9)` is the
 * form `9+7+3-21`. No part of a form is negative, since every value that is reached with negative
 * parts is reached without them, or its opposite is: `(3-7)*(2-9)` is `(7-3)*(9-2)`.
 */
export interface Form {
  readonly text: string; // equal for equal forms
  readonly expression: Expression;
  readonly value: Rational; // in lowest terms, not negative
  readonly valueText: string; // equal for equal values
  readonly size: number; // the value as a double, for orders and estimates
  readonly isWhole: boolean; // no intermediate value of the written form is a fraction
  readonly chain?: Chain; // absent for a number alone
}

/** A sum of `heads` minus `tails`, or a product of `heads` over `tails`. */
interface Chain {
  readonly kind: 'sum' | 'product';
  readonly heads: readonly Form[];
  readonly tails: readonly Form[];
}

export function leaf(number: number): Form {
  return {
    text: String(number),
    expression: number,
    value: rational.integer(number),
    valueText: String(number),
    size: number,
    isWhole: true,
  };
}

/** Every form that one operator makes of two. */
export function joins(a: Form, b: Form): Form[] {
  const [large, small] = isLess(a, b) ? [b, a] : [a, b];
  const made = [joined('sum', a, b), joined('sum', large, small, true), joined('product', a, b)];
  if (b.value.numerator !== 0n) made.push(joined('product', a, b, true));
  if (a.value.numerator !== 0n) made.push(joined('product', b, a, true));
  return made;
}

/** @param isInverse whether `b` is subtracted or divided by; then a ≥ b, or b is not 0. */
function joined(kind: Chain['kind'], a: Form, b: Form, isInverse = false): Form {
  const [left, right] = [chainOf(kind, a), chainOf(kind, b)];
  const heads = [...left.heads, ...(isInverse ? right.tails : right.heads)];
  const tails = [...left.tails, ...(isInverse ? right.heads : right.tails)];
  const value = rational.reduced(operations[kind][isInverse ? 1 : 0](a.value, b.value));
  const form = formOf({ kind, heads, tails }, value);
  if (kind === 'product' || value.numerator !== 0n || tails.length === 0) return form;
  // A sum with the value 0 is equal to its opposite.
  const turned = formOf({ kind, heads: tails, tails: heads }, value);
  return turned.text < form.text ? turned : form;
}

/** The text of the form's opposite: a reversed difference, or else a minus sign in front. */
export function oppositeText({ expression, chain }: Form): string {
  if (chain?.kind !== 'sum' || chain.tails.length === 0) return print({ negated: expression });
  return print(expressionOf({ ...chain, heads: chain.tails, tails: chain.heads }));
}

const operations = {
  sum: [rational.add, rational.subtract],
  product: [rational.multiply, (a: Rational, b: Rational) => rational.divide(a, b)!],
} as const;

function chainOf(kind: Chain['kind'], form: Form): Chain {
  return form.chain?.kind === kind ? form.chain : { kind, heads: [form], tails: [] };
}

function formOf({ kind, heads, tails }: Chain, value: Rational): Form {
  const chain = { kind, heads: heads.toSorted(byOrder), tails: tails.toSorted(byOrder) };
  const expression = expressionOf(chain);
  const isWhole = value.denominator === 1n && [...heads, ...tails].every((part) => part.isWhole);
  return {
    text: print(expression),
    expression,
    value,
    valueText: isWhole ? String(value.numerator) : rational.fractionText(value),
    size: Number(value.numerator) / Number(value.denominator),
    isWhole,
    chain,
  };
}

function expressionOf({ kind, heads, tails }: Chain): Expression {
  const [forward, inverse]: Operator[] = kind === 'sum' ? ['+', '-'] : ['*', '/'];
  const head = heads
    .map(({ expression }) => expression)
    .reduce((left, right) => ({ operator: forward!, left, right }));
  return tails.reduce<Expression>(
    (left, { expression: right }) => ({ operator: inverse!, left, right }),
    head,
  );
}

/** The largest first, as one would write it. */
function byOrder(a: Form, b: Form): number {
  return b.size - a.size || (a.text < b.text ? -1 : 1);
}

function isLess(a: Form, b: Form): boolean {
  return rational.subtract(a.value, b.value).numerator < 0n;
}
