import { print, type Expression, type Operator } from './parser.js';
import type { Problem } from './problem.js';
import type { RewardSpec } from './task.js';
import * as rational from '../rational.js';
import type { Rational } from '../rational.js';
import { SolverTables } from './solver-tables.js';

export type Question = Pick<Problem, 'numbers' | 'target'>;
type NumbersToUse = RewardSpec['numbersToUse'];

/** An expression in the numbers of a problem. */
interface Solution {
  readonly text: string; // such as `21*3+7`
  readonly value: string; // such as `70` or `13/4`
  readonly numbersUsed: number;
}

/** This many take seconds; one more would take minutes. */
export const maxNumbers = 6;

/**
 * Every solution, the best first: fewest numbers, then without fractions on the way, then the
 * shortest. Solutions that differ only in the order or grouping of a sum or product, or in signs
 * that cancel, are one. Arithmetic is exact.
 *
 * @param numbersToUse as in the reward: all of them, or some.
 * @returns nothing if there is none.
 * @throws {RangeError} unless there are 1 to 6 numbers, each a safe integer and not negative.
 */
export function solve({ numbers, target }: Question, numbersToUse: NumbersToUse = 'all') {
  const tables = new SolverTables();
  const goal = goalOf(target);
  const found = partsOf(numbers, numbersToUse).flatMap((part) =>
    tables.reaching(part, goal).map((form) => ({ form, numbersUsed: part.length })),
  );
  return found.sort(byMerit).map((candidate) => solutionOf(candidate, target));
}

/**
 * The best of the expressions whose value is nearest to the target.
 *
 * @throws {RangeError} as `solve` does.
 */
export function nearest({ numbers, target }: Question, numbersToUse: NumbersToUse = 'all') {
  const tables = new SolverTables();
  const goal = goalOf(target);
  const found = partsOf(numbers, numbersToUse).flatMap((part) =>
    tables.around(part, goal).map((form) => ({
      form,
      numbersUsed: part.length,
      error: rational.absolute(rational.subtract(form.value, goal)),
    })),
  );
  const [best] = found.sort((a, b) => compare(a.error, b.error) || byMerit(a, b));
  return solutionOf(best!, target);
}

interface Candidate {
  readonly form: Form;
  readonly numbersUsed: number;
}

/** Forms are not negative: a negative target is reached by the opposite of a form. */
function goalOf(target: number): Rational {
  return rational.absolute(rational.integer(target));
}

function solutionOf({ form, numbersUsed }: Candidate, target: number): Solution {
  const value = target < 0 ? rational.negate(form.value) : form.value;
  return {
    text: target < 0 ? oppositeText(form) : form.text,
    value: rational.fractionText(value),
    numbersUsed,
  };
}

/** The numbers that an expression may use: all, or each choice of some, once. */
function partsOf(numbers: readonly number[], numbersToUse: NumbersToUse): number[][] {
  if (numbers.length < 1 || numbers.length > maxNumbers) {
    throw new RangeError(`there are ${numbers.length} numbers; solved are 1 to ${maxNumbers}`);
  }
  const odd = numbers.find((number) => !Number.isSafeInteger(number) || number < 0);
  if (odd !== undefined) throw new RangeError(`${odd} is not a whole number of at least 0`);
  const sorted = numbers.toSorted((a, b) => a - b);
  return numbersToUse === 'all' ? [sorted] : choices(sorted);
}

/** Every choice of one or more of sorted numbers, each once even if numbers are equal. */
function choices(sorted: readonly number[]): number[][] {
  const byText = new Map<string, number[]>();
  for (let mask = 1; mask < 1 << sorted.length; mask++) {
    const choice = sorted.filter((_, i) => (mask & (1 << i)) !== 0);
    byText.set(choice.join(), choice);
  }
  return [...byText.values()];
}

function byMerit(a: Candidate, b: Candidate): number {
  return (
    a.numbersUsed - b.numbersUsed ||
    Number(b.form.isWhole) - Number(a.form.isWhole) ||
    a.form.text.length - b.form.text.length ||
    (a.form.text < b.form.text ? -1 : 1)
  );
}

function compare(a: Rational, b: Rational): number {
  const { numerator } = rational.subtract(a, b);
  return numerator < 0n ? -1 : numerator > 0n ? 1 : 0;
}

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
function oppositeText({ expression, chain }: Form): string {
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
