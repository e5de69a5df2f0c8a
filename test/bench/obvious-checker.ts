import type { Problem } from '../../shared/tasks/countdown/problem.js';

/**
 * The obvious checker, for a comparison of speeds: characters by a regular expression, the
 * numbers by another, the value by JavaScript's own compiler, in floats, with a tolerance. Only for
 * friendly answers: it accepts `2**3` and `3.5*2`, and compiles everything that passes.
 */
export function obviousReward({
  problem: { numbers, target },
  completion,
}: {
  readonly problem: Problem;
  readonly completion: string;
}): number {
  if (!/^[\d+\-*/().\s]+$/.test(completion)) return 0.1;
  const used = (completion.match(/\d+/g) ?? []).map(Number).sort((a, b) => a - b);
  const given = numbers.toSorted((a, b) => a - b);
  if (used.length !== given.length || used.some((number, i) => number !== given[i])) return 0.1;
  try {
    // oxlint-disable-next-line typescript/no-implied-eval, typescript/no-unsafe-call -- the subject of the comparison
    const value = new Function(`return (${completion})`)() as number;
    const error = Math.abs(value - target);
    return error < 1e-5 ? 1 : 0.1 + 0.9 / (1 + error);
  } catch {
    return 0.1;
  }
}
