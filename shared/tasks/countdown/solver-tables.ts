import * as rational from '../rational.js';
import type { Rational } from '../rational.js';
import { joins, leaf, type Form } from './form.js';

/** The forms that use all of some numbers, by their values. */
type Table = ReadonlyMap<string, Form[]>;

/**
 * The forms of all parts of a problem's numbers. The last operator joins two parts: for each form of
 * the smaller part, the values that it needs are looked up among those of the larger. So six numbers
 * cost only six tables of five numbers, with about 15,000 forms each.
 *
 * Numbers are sorted.
 */
export class SolverTables {
  readonly #tables = new Map<string, Table>();

  /** The forms that use all the numbers and have the goal's value, each once. */
  reaching(numbers: readonly number[], goal: Rational): Form[] {
    if (numbers.length === 1) return this.#table(numbers).get(rational.fractionText(goal)) ?? [];
    const found = new Map<string, Form>();
    for (const [small, large] of splits(numbers)) {
      const beside = this.#table(large);
      for (const a of formsIn(this.#table(small))) {
        for (const b of needed(a, goal, beside)) {
          for (const form of joins(a, b)) {
            if (rational.equals(form.value, goal)) found.set(form.text, form);
          }
        }
      }
    }
    return [...found.values()];
  }

  /** The forms that use all the numbers and are about as near to the goal as possible. */
  around(numbers: readonly number[], goal: Rational): Form[] {
    if (numbers.length === 1) return formsIn(this.#table(numbers));
    const aim = rational.toNumber(goal);
    let bound = Infinity; // the best is no farther away
    let pairs: [a: Form, b: Form, from: number][] = [];
    for (const [small, large] of splits(numbers)) {
      const beside = formsIn(this.#table(large));
      for (const a of formsIn(this.#table(small))) {
        for (const b of beside) {
          const [from, to] = distance(a.size, b.size, aim);
          if (from > bound) continue;
          pairs.push([a, b, from]);
          bound = Math.min(bound, to);
        }
      }
      pairs = pairs.filter(([, , from]) => from <= bound);
    }
    return pairs.flatMap(([a, b]) => joins(a, b));
  }

  #table(numbers: readonly number[]): Table {
    const key = numbers.join();
    const known = this.#tables.get(key);
    if (known !== undefined) return known;
    const made = numbers.length === 1 ? [leaf(numbers[0]!)] : this.#joinsOf(numbers);
    const table = new Map<string, Form[]>();
    for (const form of made) {
      const equal = table.get(form.valueText);
      if (equal === undefined) table.set(form.valueText, [form]);
      else equal.push(form);
    }
    this.#tables.set(key, table);
    return table;
  }

  #joinsOf(numbers: readonly number[]): Form[] {
    const byText = new Map<string, Form>();
    for (const [small, large] of splits(numbers)) {
      const beside = formsIn(this.#table(large));
      for (const a of formsIn(this.#table(small))) {
        for (const b of beside) for (const form of joins(a, b)) byText.set(form.text, form);
      }
    }
    return [...byText.values()];
  }
}

function formsIn(table: Table): Form[] {
  return [...table.values()].flat();
}

/** The forms that reach the goal together with `a` by some operator. */
function needed({ value: a }: Form, goal: Rational, beside: Table): Form[] {
  const isZero = ({ numerator }: Rational) => numerator === 0n;
  if (isZero(a) && isZero(goal)) return formsIn(beside); // 0*b and 0/b
  const values = [
    rational.absolute(rational.subtract(goal, a)), // a+b, a-b
    rational.add(goal, a), // b-a
    rational.multiply(goal, a), // b/a
    rational.divide(goal, a), // a*b
    rational.divide(a, goal), // a/b
  ];
  const texts = values.filter((value) => value !== undefined).map(rational.fractionText);
  if (isZero(goal)) texts.push('0');
  return [...new Set(texts)].flatMap((text) => beside.get(text) ?? []);
}

const rounding = 1e-15; // of a few operations on doubles, relative

/** Bounds on the least distance to the aim that one operator leaves. */
function distance(a: number, b: number, aim: number): [from: number, to: number] {
  let [from, to] = [Infinity, Infinity];
  const consider = (value: number, largest: number) => {
    const error = Math.abs(value - aim);
    const slack = rounding * (largest + aim);
    from = Math.min(from, error - slack);
    to = Math.min(to, error + slack);
  };
  consider(a + b, a + b);
  consider(Math.abs(a - b), a + b);
  consider(a * b, a * b);
  if (b !== 0) consider(a / b, a / b);
  if (a !== 0) consider(b / a, b / a);
  return [from, to];
}

/** The ways to split sorted numbers in two, the smaller part first, each once even if numbers are equal. */
function splits(numbers: readonly number[]): [small: number[], large: number[]][] {
  const byText = new Map<string, [number[], number[]]>();
  for (let mask = 1; mask < 1 << (numbers.length - 1); mask++) {
    const [part, rest]: [number[], number[]] = [[], []];
    for (const [i, number] of numbers.entries()) (mask & (1 << i) ? part : rest).push(number);
    const pair: [number[], number[]] = part.length <= rest.length ? [part, rest] : [rest, part];
    const [key, turned] = [pair.join('|'), [pair[1], pair[0]].join('|')];
    if (!byText.has(turned)) byText.set(key, pair);
  }
  return [...byText.values()];
}
