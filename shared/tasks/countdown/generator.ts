import { UserError } from '../../base/errors.js';
import { createRandom, type Random } from '../../base/random.js';
import { operators, print, type Expression, type Operator } from './parser.js';
import { problemKey, problemOf, type Problem } from './problem.js';
import type { GeneratorSpec } from './task.js';

/** The parameters of a single draw: the number of numbers, and the ranges of numbers and target. */
type Difficulty = Pick<
  GeneratorSpec,
  'numbers' | 'minNumber' | 'maxNumber' | 'minTarget' | 'maxTarget'
>;

export interface SolvedProblem {
  readonly problem: Problem;
  /** An expression such as `(7-3)*21` that uses every number once and has exactly the target's value. */
  readonly witness: string;
}

/**
 * The problems of a generated dataset, the held-out ones (`testSize`) first. No two have the same
 * numbers and target. Only the seed determines the sequence; the sizes determine where it is cut.
 *
 * @throws {UserError} if the ranges contain fewer different problems than requested.
 */
export function generateProblems(spec: GeneratorSpec): SolvedProblem[] {
  const random = createRandom(spec.seed);
  const wanted = spec.testSize + spec.trainSize;
  const seen = new Set<string>();
  const solved: SolvedProblem[] = [];
  for (let drawsInVain = 0; solved.length < wanted;) {
    const drawn = drawProblem(random, spec);
    const key = drawn === undefined ? undefined : problemKey(drawn.problem);
    if (drawn !== undefined && key !== undefined && !seen.has(key)) {
      seen.add(key);
      solved.push(drawn);
      drawsInVain = 0;
    } else if (++drawsInVain === maxDrawsInVain) {
      throw new UserError(
        `the dataset asks for ${wanted} different problems, but after ${solved.length} the generator ` +
          `finds no new one (${spec.numbers.join(' or ')} numbers from ${spec.minNumber ?? 1} to ${spec.maxNumber}, targets ` +
          `from ${spec.minTarget ?? 1} to ${spec.maxTarget}); ask for fewer, or for wider ranges`,
      );
    }
  }
  return solved;
}

/**
 * One random problem with a solution, which may repeat an earlier one; undefined if this draw failed.
 *
 * The distribution: the number of numbers, the shape of the expression and each operator are uniform;
 * then numbers, uniform in minNumber..maxNumber, are redrawn until every step of the expression is a
 * positive integer and the last one in minTarget..maxTarget. So all four operators are common in the
 * witnesses (of 100,000 problems of 3 numbers up to 99 and targets up to 100, in percent: 29 +,
 * 35 -, 15 *, 20 /; redrawing whole expressions would leave hardly a product or quotient), and
 * targets are spread evenly except for the smallest tenth, which gets 17 percent. The problem shows
 * its numbers in an order independent of the witness.
 */
export function drawProblem(random: Random, difficulty: Difficulty): SolvedProblem | undefined {
  const { numbers: counts, minNumber = 1, maxNumber, minTarget = 1, maxTarget } = difficulty;
  const count = counts[random.int(counts.length)]!;
  const template = randomTemplate(random, 0, count);
  const numbers = new Array<number>(count);
  for (let attempt = 0; attempt < maxRedraws; attempt++) {
    for (let i = 0; i < count; i++) numbers[i] = minNumber + random.int(maxNumber - minNumber + 1);
    const target = positiveInteger(template, numbers);
    if (target !== undefined && target >= minTarget && target <= maxTarget) {
      const problem = problemOf(random.shuffle(numbers), target);
      return { problem, witness: print(filledIn(template, numbers)) };
    }
  }
  return undefined;
}

/**
 * A random well-formed expression that uses each number once, in any order and shape, with any operators
 * and any value.
 */
export function drawExpression(random: Random, numbers: readonly number[]): string {
  return print(filledIn(randomTemplate(random, 0, numbers.length), random.shuffle(numbers)));
}

const maxRedraws = 64; // then this shape and these operators do not fit the ranges; draw others
const maxDrawsInVain = 10_000;

/** An expression whose leaves are positions in a list of numbers still to be drawn. */
type Template = number | { operator: Operator; left: Template; right: Template };

/** A random template over the positions `from`, …, `from + count - 1`. */
function randomTemplate(random: Random, from: number, count: number): Template {
  if (count === 1) return from;
  const countLeft = 1 + random.int(count - 1);
  return {
    operator: operators[random.int(operators.length)]!,
    left: randomTemplate(random, from, countLeft),
    right: randomTemplate(random, from + countLeft, count - countLeft),
  };
}

function filledIn(template: Template, numbers: readonly number[]): Expression {
  if (typeof template === 'number') return numbers[template]!;
  const { operator, left, right } = template;
  return { operator, left: filledIn(left, numbers), right: filledIn(right, numbers) };
}

/** The value with these numbers, or undefined unless it and all its parts are positive integers. */
function positiveInteger(template: Template, numbers: readonly number[]): number | undefined {
  if (typeof template === 'number') return numbers[template];
  const left = positiveInteger(template.left, numbers);
  if (left === undefined) return undefined;
  const right = positiveInteger(template.right, numbers);
  if (right === undefined) return undefined;
  switch (template.operator) {
    case '+':
      return left + right;
    case '-':
      return left > right ? left - right : undefined;
    case '*':
      return left * right <= Number.MAX_SAFE_INTEGER ? left * right : undefined;
    case '/':
      return left % right === 0 ? left / right : undefined;
  }
}

/**
 * The problems for which the embedded model was trained, and the default of `npm start`. Its first
 * `testSize` problems are held out: neither pre-training nor RL ever sees them.
 *
 * Problems are drawn without repeats from about 42,000, so later ones are increasingly of rare kinds: a
 * train split of 30,000 would have another distribution than the held-out problems
 * (a base model that solved 28 % of those solved 16 % of the last).
 */
export const embeddedDataset: GeneratorSpec = {
  kind: 'generator',
  seed: 0,
  numbers: [3],
  maxNumber: 30,
  maxTarget: 100,
  trainSize: 8_192,
  testSize: 1_024,
};
