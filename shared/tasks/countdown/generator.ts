import crypto from 'node:crypto';
import { UserError } from '../../base/errors.js';
import { createRandom, type Random } from '../../base/random.js';
import { operators, print, type Expression, type Operator } from './parser.js';
import { combinationOf, problemOf, type Problem } from './problem.js';
import type { GeneratorSpec } from './spec.js';

/** The parameters of a single draw: the number of numbers, and the ranges of numbers and target. */
export type Difficulty = Pick<
  GeneratorSpec,
  'numbers' | 'minNumber' | 'maxNumber' | 'minTarget' | 'maxTarget'
>;

export interface SolvedProblem {
  readonly problem: Problem;
  /** An expression such as `(7-3)*21` that uses every number once and has exactly the target's value. */
  readonly witness: string;
}

/** A generated dataset: `testSize` held-out problems and `trainSize` problems to train on. */
interface GeneratedProblems {
  readonly test: readonly SolvedProblem[];
  readonly train: readonly SolvedProblem[];
}

/**
 * The problems of a generated dataset. No two have the same numbers and target, and no held-out problem
 * has the numbers of one to train on (`areHeldOut`), nor is it of the kind that is only rehearsed. Only the seed
 * determines the two sequences; the sizes determine where each is cut.
 *
 * @throws {UserError} if the ranges contain fewer different problems than requested.
 */
export function generateProblems(spec: GeneratorSpec): GeneratedProblems {
  const { rehearsal, seed, trainSize } = spec;
  if (rehearsal === undefined) return drawSplits(spec, createRandom(seed));
  const chance = createRandom(`share ${seed}`);
  const areRehearsed = Array.from({ length: trainSize }, () => chance.next() < rehearsal.share);
  const rehearsed = areRehearsed.filter(Boolean).length;
  const fresh = drawSplits({ ...spec, trainSize: trainSize - rehearsed }, createRandom(seed));
  const ofKnown = { ...rehearsal, testSize: 0, trainSize: rehearsed };
  const known = drawSplits(ofKnown, createRandom(`rehearsal ${seed}`)).train;
  const [freshOnes, knownOnes] = [fresh.train.values(), known.values()];
  const train = areRehearsed.map((isRehearsed) => {
    const { problem, witness } = (isRehearsed ? knownOnes : freshOnes).next().value!;
    return { problem: { ...problem, isRehearsed }, witness };
  });
  return { test: fresh.test, train };
}

/** Draws problems to hold out and to train on until there are enough of both. */
function drawSplits(
  spec: Difficulty & Pick<GeneratorSpec, 'testSize' | 'trainSize'>,
  random: Random,
): GeneratedProblems {
  const seen = new Set<string>();
  const test: SolvedProblem[] = [];
  const train: SolvedProblem[] = [];
  for (let drawsInVain = 0; test.length < spec.testSize || train.length < spec.trainSize;) {
    const drawn = drawProblem(random, spec);
    if (drawn !== undefined) {
      const combination = combinationOf(drawn.problem.numbers);
      const key = `${combination}=${drawn.problem.target}`; // as problemKey, which would sort again
      if (!seen.has(key)) {
        const [split, size] = isHeldOut(combination)
          ? [test, spec.testSize]
          : [train, spec.trainSize];
        if (split.length < size) {
          seen.add(key);
          split.push(drawn);
          drawsInVain = 0;
          continue;
        }
      }
    }
    if (++drawsInVain === maxDrawsInVain) {
      throw new UserError(
        `the dataset asks for ${spec.trainSize} different problems to train on and ${spec.testSize} held out, ` +
          `but after ${train.length} and ${test.length} the generator finds no new one ` +
          `(${spec.numbers.join(' or ')} numbers from ${spec.minNumber ?? 1} to ${spec.maxNumber}, targets ` +
          `from ${spec.minTarget ?? 1} to ${spec.maxTarget}; one in ${heldOutOneIn} combinations of numbers is held out); ` +
          `ask for fewer, or for wider ranges`,
      );
    }
  }
  return { test, train };
}

/**
 * Whether problems with these numbers, in any order and with any target, are held out. It depends on
 * nothing else, so that the embedded model was pre-trained on no problem that any generated dataset holds
 * out.
 */
export function areHeldOut(numbers: readonly number[]): boolean {
  return isHeldOut(combinationOf(numbers));
}

function isHeldOut(combination: string): boolean {
  return sha256(combination).charCodeAt(0) % heldOutOneIn === 0;
}

/**
 * The digest as a string of its bytes. In one call and without a buffer where Node.js can (20.12): every process of a run
 * draws all problems.
 */
const sha256: (text: string) => string =
  'hash' in crypto
    ? (text) => crypto.hash('sha256', text, 'binary')
    : (text) => crypto.createHash('sha256').update(text).digest('binary');

const heldOutOneIn = 8; // a power of two, so that the first byte decides

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
  if (upperBound(template, maxNumber) < minTarget) return undefined;
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

/** No numbers up to `maxNumber` give a larger value, if every part of it is a positive integer. */
function upperBound(template: Template, maxNumber: number): number {
  if (typeof template === 'number') return maxNumber;
  const left = upperBound(template.left, maxNumber);
  const right = upperBound(template.right, maxNumber);
  switch (template.operator) {
    case '+':
      return left + right;
    case '-':
      return left - 1;
    case '*':
      return left * right;
    case '/':
      return left;
  }
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

/** The problems on which the embedded model was pre-trained, without the combinations of numbers that are held out. */
export const pretrainedProblems = {
  numbers: [3, 4],
  maxNumber: 50,
  maxTarget: 100,
} satisfies Difficulty;

/**
 * The default of `npm start`: targets above every one that the embedded model has seen. Without rehearsal it
 * forgets what it knew: ten minutes take its rate on pre-trained problems from 38 to 9 percent.
 */
export const embeddedDataset = {
  kind: 'generator',
  seed: 0,
  numbers: [3],
  maxNumber: pretrainedProblems.maxNumber,
  minTarget: pretrainedProblems.maxTarget + 1,
  maxTarget: 200,
  trainSize: 20_480,
  testSize: 1_024,
  rehearsal: { share: 0.3, ...pretrainedProblems },
} satisfies GeneratorSpec;
