import type { Problem } from './problem.js';
import type { RewardSpec } from './spec.js';
import * as rational from '../rational.js';
import type { Rational } from '../rational.js';
import { oppositeText, type Form } from './form.js';
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
