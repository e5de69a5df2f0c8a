import { mean } from '../../base/statistics.js';
import { passAtK, passLevels } from '../../rl/pass-at-k.js';
import type { Answers, EvalResult, SolveRates } from '../../wire/eval-result.js';

/** A problem as far as an evaluation knows it. */
export interface EvalProblem {
  readonly id: string;
  readonly difficulty: string; // how it is classed when results are told by difficulty
}

/**
 * What the answers to some problems come to.
 *
 * @param problems [P] in the order of the answers.
 * @returns the rates over all problems, and over those of each difficulty, in order of their names.
 * @throws {Error} if no answer at all came, of one kind or the other.
 */
export function solveRates(
  problems: readonly EvalProblem[],
  answers: EvalResult['answers'],
): SolveRates & Pick<EvalResult, 'byDifficulty'> {
  const all = ratesOf(
    problems.map((_, i) => i),
    answers,
  );
  if (all === undefined) {
    throw new Error('the evaluation came to nothing: every one of its tickets died');
  }
  const difficulties = [...new Set(problems.map(({ difficulty }) => difficulty))].sort(naturally);
  const byDifficulty = difficulties.flatMap((difficulty) => {
    const members = problems.flatMap((problem, i) => (problem.difficulty === difficulty ? i : []));
    const rates = ratesOf(members, answers);
    return rates === undefined ? [] : { difficulty, ...rates };
  });
  return { ...all, byDifficulty };
}

/** @param members places of the problems. */
function ratesOf(
  members: readonly number[],
  { sampled, greedy }: EvalResult['answers'],
): SolveRates | undefined {
  const answered = (kind: Answers) => members.filter((i) => kind.total[i]! > 0);
  const [bySampling, greedily] = [answered(sampled), answered(greedy)];
  if (bySampling.length === 0 || greedily.length === 0) return undefined;

  const samples = bySampling.reduce((least, i) => Math.min(least, sampled.total[i]!), Infinity);
  const passRate = (k: number): number =>
    mean(bySampling.map((i) => passAtK(k, sampled.correct[i]!, sampled.total[i]!)));
  return {
    problems: members.length,
    sampled: passRate(1),
    greedy: mean(greedily.map((i) => greedy.correct[i]! / greedy.total[i]!)),
    passAt: Object.fromEntries(passLevels(samples).map((k) => [String(k), passRate(k)])),
  };
}

/** `10 numbers` behind `3 numbers`. */
function naturally(a: string, b: string): number {
  return a.localeCompare(b, 'en', { numeric: true });
}
