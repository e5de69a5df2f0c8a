/** Reach `target` from `numbers`, each used exactly once, with + - * / and parentheses. */
export interface Problem {
  /** The question itself, `3,7,21=64`: the same in every run and process. */
  readonly id: string;
  readonly difficulty: string; // how many numbers there are
  readonly numbers: readonly number[]; // in the order in which the prompt shows them
  readonly target: number;
}

/** A problem under the id that its content gives it. */
export function problemOf(numbers: readonly number[], target: number): Problem {
  const id = `${numbers.join(',')}=${target}`;
  return { id, difficulty: `${numbers.length} numbers`, numbers, target };
}

/**
 * What makes two problems the same question: the target and the numbers in any order. Held-out
 * problems stay held out only if no trained one has the same key.
 */
export function problemKey(problem: Pick<Problem, 'numbers' | 'target'>): string {
  return `${problem.numbers.toSorted((a, b) => a - b).join(',')}=${problem.target}`;
}
