import { maxNumbers, nearest, solve } from './solver.js';
import type { RewardSpec } from '../../shared/tasks/countdown/spec.js';
import { exampleRow, problemOfRow } from '../../shared/tasks/countdown/task.js';
import { UserError } from '../../shared/base/errors.js';
import { readRows, tableSpec } from '../../shared/tasks/data/table.js';

export interface SolveRowsOptions {
  readonly numbersToUse: RewardSpec['numbersToUse'];
  readonly json: boolean;
  readonly print: (text: string) => void;
}

/**
 * Tries every problem of a data file: one that nobody can solve teaches nothing and lowers every
 * score. Prints how many have a solution, and those that have none with what comes nearest.
 *
 * @returns the exit code: 0 if all have one.
 * @throws {UserError} naming the file, or a row that is no problem or has too many numbers.
 */
export async function solveRows(
  path: string,
  { numbersToUse, json, print }: SolveRowsOptions,
): Promise<number> {
  const spec = tableSpec(path, { seed: 0, testSize: 1 }, '--rows');
  const problems = await readRows(spec, problemOfRow, exampleRow);
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
