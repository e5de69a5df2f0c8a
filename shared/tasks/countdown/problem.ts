import { z } from 'zod';
import { plainWords } from '../../base/plain-words.js';

/** Reach `target` from `numbers`, each used exactly once, with + - * / and parentheses. */
export interface Problem {
  /** The question itself, `3,7,21=64`: the same in every run and process. */
  readonly id: string;
  readonly difficulty: string; // the number of numbers
  readonly numbers: readonly number[]; // in the order of the prompt
  readonly target: number;
  readonly solution?: string; // an expression, for generated problems
  readonly isRehearsed?: boolean; // of a generated problem to train on, if some are rehearsed
}

/** The problem with these numbers and target; its id is derived from them. */
export function problemOf(numbers: readonly number[], target: number): Problem {
  const id = `${numbers.join(',')}=${target}`;
  return { id, difficulty: `${numbers.length} numbers`, numbers, target };
}

/**
 * The key that is equal for two problems with the same target and the same numbers in any order. No
 * training problem may have the key of a held-out problem.
 */
export function problemKey(problem: Pick<Problem, 'numbers' | 'target'>): string {
  return `${combinationOf(problem.numbers)}=${problem.target}`;
}

/** The numbers regardless of their order: `3,7,21`. */
export function combinationOf(numbers: readonly number[]): string {
  return numbers.toSorted((a, b) => a - b).join(',');
}

/** An example row of a data file, for error messages. */
export const exampleRow = { nums: [3, 7, 21], target: 84 };

/** One row of a file; other keys are ignored. */
const Row = z.object({
  nums: z.array(z.int().min(0).max(999_999_999)).min(2).max(16),
  target: z.int().min(-999_999_999).max(999_999_999),
});

/** The problem in a row of a data file. */
export function problemOfRow(row: unknown): Problem {
  const { nums, target } = Row.parse(row, { error: plainWords });
  return problemOf(nums, target);
}
