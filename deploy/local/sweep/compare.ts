import { createRandom } from '../../../shared/random.js';
import { pairedDifference, type BootstrapOptions, type Estimate } from './bootstrap.js';
import { answeredByAll, lastScores } from './measures.js';
import { describe, isIn, type Cell } from './plan.js';
import type { RunResult } from './results.js';
import type { Choice, Comparison, Measure } from './sweep-file.js';

/** How a cell does beside its baseline. */
export interface Compared {
  readonly choice: Choice;
  readonly baseline: Choice;
  readonly pairs: number; // seeds that both have
  readonly byProblems: Estimate;
  readonly bySeeds: Estimate; // seeds drawn anew, too
  readonly verdict: Verdict;
}

/** What the interval over the problems says. */
export type Verdict = 'better' | 'worse' | 'within the margin' | 'not decided';

export interface CompareOptions extends Omit<BootstrapOptions, 'over' | 'random'> {
  readonly seed: string; // of the resamples
}

/**
 * Compares every cell with its baseline, problem by problem and seed by seed, by the answers of the
 * last evaluations. Cells without a pair of runs are left out.
 */
export function compare(
  { against, margin }: Comparison,
  spec: Extract<Measure, { from: 'eval' }>,
  cells: readonly Cell[],
  resultsOf: (choice: Choice) => readonly RunResult[],
  { seed, ...bootstrap }: CompareOptions,
): Compared[] {
  return cells.flatMap(({ choice }) => {
    const baseline = { ...choice, ...against };
    if (isIn(choice, against)) return [];
    const others = new Map(resultsOf(baseline).map((result) => [result.seed, result]));
    const pairs = resultsOf(choice).filter((result) => others.has(result.seed));
    if (pairs.length === 0) return [];
    const [scores, base] = answeredByAll([
      pairs.map((result) => lastScores(result, spec.key)),
      pairs.map((result) => lastScores(others.get(result.seed)!, spec.key)),
    ]);
    const difference = (over: BootstrapOptions['over']) => {
      const random = createRandom(`${seed} ${over} ${describe(choice)}`);
      return pairedDifference(scores!, base!, { ...bootstrap, over, random });
    };
    const byProblems = difference('problems');
    return {
      ...{ choice, baseline, pairs: pairs.length, byProblems },
      bySeeds: difference('problems and seeds'),
      verdict: verdictOn(byProblems, margin),
    };
  });
}

/** With a margin the question is whether anything is lost that matters; without, whether there is a difference. */
export function verdictOn({ low, high }: Estimate, margin: number | undefined): Verdict {
  if (margin !== undefined && low > -margin) return low > margin ? 'better' : 'within the margin';
  if (margin !== undefined) return high < -margin ? 'worse' : 'not decided';
  return low > 0 ? 'better' : high < 0 ? 'worse' : 'not decided';
}
