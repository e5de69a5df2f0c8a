/** Reach `target` from `numbers`, each used exactly once, with + - * / and parentheses. */
export interface Problem {
  /** The question itself, `3,7,21=64`: the same in every run and process. */
  readonly id: string;
  readonly difficulty: string; // the number of numbers
  readonly numbers: readonly number[]; // in the order of the prompt
  readonly target: number;
  readonly solution?: string; // an expression, for generated problems
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
  return `${problem.numbers.toSorted((a, b) => a - b).join(',')}=${problem.target}`;
}
