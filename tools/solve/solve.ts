import { z } from 'zod';
import { UserError } from '../../shared/base/errors.js';
import { describeFlags } from '../../shared/service/config-help.js';
import { type Environment, loadConfig } from '../../shared/service/config.js';
import type { RewardSpec } from '../../shared/tasks/countdown/spec.js';
import { exampleRow, problemOfRow } from '../../shared/tasks/countdown/problem.js';
import { maxNumbers, nearest, solve, type Question } from '../../shared/tasks/countdown/solver.js';
import { readRows, tableSpec } from '../../shared/tasks/data/table.js';

/** How to print solutions. */
export const SolveConfig = z.object({
  all: z.boolean().default(false).describe('every solution, the best first.'),
  some: z.boolean().default(false).describe('numbers may be left out, as in the classical game.'),
  json: z.boolean().default(false).describe('the answer as one line of JSON.'),
  rows: z
    .string()
    .min(1)
    .optional()
    .describe('a data file; every problem in it is tried, instead of one problem.'),
});

/** `offbeat-solve` rather than `solve` in names of the environment: OFFBEAT_SOLVE_ALL. */
export const solveService = 'offbeat-solve';

export function solveHelp(): string {
  return `offbeat solve NUMBER... TARGET: a solution of a Countdown problem, or the nearest result.
offbeat solve --rows FILE: the number of problems in a data file with a solution, and those without one.

There may be 1 to ${maxNumbers} numbers, and as many solutions as differ in more than order and
grouping. The exit code is 0 if there is one, for every problem, and 1 if there is none.

${describeFlags(SolveConfig.shape, solveService)}
`;
}

/**
 * Prints the solutions, or else the nearest result; for a file, the problems without a solution.
 *
 * @returns the exit code: 0 if there is a solution.
 * @throws {UserError} naming an argument that is neither a number nor a flag.
 */
export async function solveCommand(
  words: readonly string[],
  env: Environment,
  print: (text: string) => void,
): Promise<number> {
  const isNumber = (word: string) => /^-?\d+$/.test(word);
  const flags = words.filter((word) => !isNumber(word));
  const stray = flags.find(
    (word, i) => !word.startsWith('-') && !['--rows', '--config'].includes(flags[i - 1] ?? ''),
  );
  if (stray !== undefined) {
    throw new UserError(`offbeat solve cannot take ${stray}; give whole numbers and flags alone`);
  }
  const { all, some, json, rows } = loadConfig(SolveConfig, solveService, flags, env);
  const numbersToUse = some ? 'some' : 'all';
  const numbers = words.filter(isNumber).map(Number);
  if (rows !== undefined) {
    if (numbers.length === 0 && !all) return await solveRows(rows, { numbersToUse, json, print });
    const extra = all ? '--all' : String(numbers[0]);
    throw new UserError(`--rows ${rows} takes the problems from the file; remove ${extra}`);
  }
  const question = questionOf(words.filter(isNumber));

  const solutions = solve(question, numbersToUse);
  const shown = all ? solutions : solutions.slice(0, 1);
  const near = shown[0] ?? nearest(question, numbersToUse);
  if (json) {
    const answer = { ...question, numbersToUse, count: solutions.length, solutions: shown };
    print(`${JSON.stringify({ ...answer, nearest: near })}\n`);
  } else if (solutions.length === 0) {
    print(`no solution; the nearest is ${near.text} = ${near.value}\n`);
  } else {
    for (const { text, value } of shown) print(`${text} = ${value}\n`);
  }
  return solutions.length === 0 ? 1 : 0;
}

function questionOf(words: readonly string[]): Question {
  const given = words.map(Number);
  const [numbers, target] = [given.slice(0, -1), given.at(-1)];
  const large = words.find((word) => !Number.isSafeInteger(Number(word)));
  if (large !== undefined) {
    throw new UserError(
      `offbeat solve cannot take ${large}; give numbers up to ${Number.MAX_SAFE_INTEGER}`,
    );
  }
  const negative = numbers.find((one) => one < 0);
  if (negative !== undefined) {
    throw new UserError(`offbeat solve cannot take ${negative}; give whole numbers from 0 on`);
  }
  if (target === undefined || numbers.length < 1 || numbers.length > maxNumbers) {
    throw new UserError(
      `offbeat solve has ${Math.max(0, numbers.length)} numbers beside the target; ` +
        `give 1 to ${maxNumbers} and then the target, as in: offbeat solve 3 7 21 84`,
    );
  }
  return { numbers, target };
}

interface SolveRowsOptions {
  readonly numbersToUse: RewardSpec['numbersToUse'];
  readonly json: boolean;
  readonly print: (text: string) => void;
}

/**
 * Tries every problem of a data file: unsolvable ones train nothing and lower every score. Prints how
 * many have a solution, and the others with their nearest results.
 *
 * @returns the exit code: 0 if all have one.
 * @throws {UserError} naming the file, or a row that is not a problem or has too many numbers.
 */
async function solveRows(
  path: string,
  { numbersToUse, json, print }: SolveRowsOptions,
): Promise<number> {
  const spec = tableSpec(path, { seed: 0, testSize: 1 }, '--rows');
  const problems = await readRows(spec, problemOfRow, exampleRow);
  if (problems.length === 0) throw new UserError(`--rows ${path} has no problem`);
  const large = problems.find(({ numbers }) => numbers.length > maxNumbers);
  if (large !== undefined) {
    throw new UserError(
      `${path} has a problem with ${large.numbers.length} numbers (${large.numbers.join(' ')}); ` +
        `at most ${maxNumbers} can be solved`,
    );
  }
  const unsolvable = problems
    .filter((problem) => solve(problem, numbersToUse).length === 0)
    .map(({ numbers, target }) => {
      const near = nearest({ numbers, target }, numbersToUse);
      return { nums: numbers, target, nearest: near };
    });
  const solvable = problems.length - unsolvable.length;
  if (json) {
    print(`${JSON.stringify({ problems: problems.length, solvable, numbersToUse, unsolvable })}\n`);
  } else {
    print(`${solvable} of ${problems.length} problems have a solution\n`);
    for (const { nums, target, nearest: near } of unsolvable) {
      print(`  not ${nums.join(' ')} ${target}; the nearest is ${near.text} = ${near.value}\n`);
    }
  }
  return unsolvable.length === 0 ? 0 : 1;
}
