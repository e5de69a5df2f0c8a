import { createRandom } from '../../shared/base/random.js';
import {
  pairedDifference,
  type BootstrapOptions,
  type Estimate,
  type PairedDifference,
} from './bootstrap.js';
import { answeredByAll, isOfEqualLengths, problemsOf, scoresOf } from './measures.js';
import { describe, isIn, type Cell } from './plan.js';
import type { ProblemsOfRate } from './problem-counts.js';
import type { RunResult } from './results.js';
import type { Choice, Comparison, EvalMeasure } from './sweep-file.js';

/** A cell compared with its baseline. */
export interface Compared extends PairedDifference {
  readonly choice: Choice;
  readonly baseline: Choice;
  readonly pairs: number; // seeds that both have
  readonly problems: ProblemsOfRate;
  readonly verdict: Verdict;
}

/** The conclusion from the interval over the seeds; with one pair, from that over the problems. */
type Verdict = 'better' | 'no worse' | 'worse' | 'not decided';

export interface CompareOptions extends Omit<BootstrapOptions, 'random'> {
  readonly seed: string; // of the resamples
}

/**
 * Compares every cell with its baseline, problem by problem and seed by seed, by the answers of the
 * last evaluations. Cells without a pair of runs, or with runs on different numbers of problems, are left out.
 */
export function compare(
  { against, margin }: Comparison,
  spec: EvalMeasure,
  cells: readonly Cell[],
  resultsOf: (choice: Choice) => readonly RunResult[],
  { seed, ...bootstrap }: CompareOptions,
): Compared[] {
  return cells.flatMap(({ choice }) => {
    const baseline = { ...choice, ...against };
    if (isIn(choice, against)) return [];
    const others = new Map(
      resultsOf(baseline).map((result) => [result.seed, scoresOf(result, spec)]),
    );
    const pairs = resultsOf(choice).flatMap((result) => {
      const [mine, other] = [scoresOf(result, spec), others.get(result.seed)];
      return mine === undefined || other === undefined ? [] : [{ mine, other }];
    });
    const all = pairs.flatMap(({ mine, other }) => [mine, other]);
    if (pairs.length === 0 || !isOfEqualLengths(all)) return [];
    const [scores, base] = answeredByAll([
      pairs.map(({ mine }) => mine),
      pairs.map(({ other }) => other),
    ]);
    if (scores![0]!.length === 0) return [];
    const random = createRandom(`${seed} problems ${describe(choice)}`);
    const found = pairedDifference(scores!, base!, { ...bootstrap, random });
    const verdict = verdictOn(found.bySeeds ?? found.byProblems, margin);
    const problems = problemsOf(all, scores!);
    return { choice, baseline, pairs: pairs.length, problems, ...found, verdict };
  });
}

/**
 * With a margin the question is whether the loss exceeds it; without one, whether there is any
 * difference.
 */
export function verdictOn({ low, high }: Estimate, margin: number | undefined): Verdict {
  if (low > (margin ?? 0)) return 'better';
  if (high < -(margin ?? 0)) return 'worse';
  return margin !== undefined && low > -margin ? 'no worse' : 'not decided';
}
