import { mean } from '../../base/statistics.js';
import { passAtK, passLevels } from '../../rl/pass-at-k.js';
import type { Answers, EvalResult, SolveRates } from '../../wire/eval-result.js';

/** The part of a problem that an evaluation uses. */
export interface EvalProblem {
  readonly id: string;
  readonly difficulty: string; // the class under which its results are reported
}

/**
 * The solve rates of some problems.
 *
 * @param problems [P] in the order of the answers.
 * @returns the rates over all problems, and over those of each difficulty, in order of their names; undefined if
 *   there is no sampled or no greedy answer at all.
 */
export function solveRates(
  problems: readonly EvalProblem[],
  answers: EvalResult['answers'],
): (SolveRates & Pick<EvalResult, 'byDifficulty'>) | undefined {
  const all = ratesOf(
    problems.map((_, i) => i),
    answers,
  );
  if (all === undefined) return undefined;
  const difficulties = [...new Set(problems.map(({ difficulty }) => difficulty))].sort(naturally);
  const byDifficulty = difficulties.flatMap((difficulty) => {
    const members = problems.flatMap((problem, i) => (problem.difficulty === difficulty ? i : []));
    const rates = ratesOf(members, answers);
    return rates === undefined ? [] : { difficulty, ...rates };
  });
  return { ...all, byDifficulty };
}

/** @param members indices of the problems. */
function ratesOf(
  members: readonly number[],
  { sampled, greedy }: EvalResult['answers'],
): SolveRates | undefined {
  const answered = (kind: Answers) => members.filter((i) => kind.total[i]! > 0);
  const [bySampling, greedily] = [answered(sampled), answered(greedy)];
  if (bySampling.length === 0 || greedily.length === 0) return undefined;

  const samples = bySampling.reduce((most, i) => Math.max(most, sampled.total[i]!), 0);
  // A problem that lacks answers, since a ticket of it died, counts for as many tries as it has answers.
  const passRate = (k: number): number => {
    const enough = bySampling.filter((i) => sampled.total[i]! >= k);
    return mean(enough.map((i) => passAtK(k, sampled.correct[i]!, sampled.total[i]!)));
  };
  return {
    problems: members.length,
    sampled: passRate(1),
    greedy: mean(greedily.map((i) => greedy.correct[i]! / greedy.total[i]!)),
    passAt: Object.fromEntries(passLevels(samples).map((k) => [String(k), passRate(k)])),
  };
}

/** Sorts `10 numbers` after `3 numbers`. */
function naturally(a: string, b: string): number {
  return a.localeCompare(b, 'en', { numeric: true });
}
