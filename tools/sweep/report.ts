import { createRandom } from '../../shared/base/random.js';
import type { Chart } from '../../cli/plot/chart.js';
import { figureSvg, figureOf } from './figure.js';
import { mean } from '../../shared/base/statistics.js';
import { compare, type Compared } from './compare.js';
import { measure } from './measures.js';
import { cellsOf, describe, type PlannedRun } from './plan.js';
import { type ProblemCount, problemCounts, problemWarnings } from './problem-counts.js';
import type { RunResult } from './results.js';
import type { Choice, Comparison, EvalMeasure, Sweep } from './sweep-file.js';
import type { CellReport } from './table.js';

/** The results of an experiment so far. */
export interface Report {
  readonly sweep: Sweep;
  readonly planned: readonly PlannedRun[];
  readonly results: readonly RunResult[]; // of planned runs
  readonly cells: readonly CellReport[];
  readonly comparisons: readonly {
    readonly spec: Comparison;
    readonly compared: readonly Compared[];
  }[];
  readonly problems: readonly ProblemCount[];
  readonly warnings: readonly string[]; // about rates of fewer problems, or of different ones
  readonly charts: readonly Chart[];
  readonly svg: string;
}

const bootstrap = { resamples: 2_000, confidence: 0.95 };

/** Summarizes the results. The same results give the same report, to the last digit. */
export function reportOf(
  sweep: Sweep,
  planned: readonly PlannedRun[],
  results: readonly RunResult[],
): Report {
  const cells = cellsOf(sweep);
  const resultsOf = (choice: Choice) =>
    results.filter((result) => describe(result.choice) === describe(choice));
  const reports = cells.map(({ choice, limits }): CellReport => {
    const mine = resultsOf(choice);
    return {
      choice,
      runs: mine.length,
      planned: planned.filter((run) => describe(run.choice) === describe(choice)).length,
      ends: endsOf(mine, limits.minutes === undefined ? 'max_steps' : 'max_minutes'),
      minutes: mine.length === 0 ? 0 : mean(mine.map(({ seconds }) => seconds)) / 60,
      measured: sweep.measures.map((spec) => {
        const random = createRandom(`${sweep.name} ${spec.name} ${describe(choice)}`);
        return measure(spec, mine, { ...bootstrap, random });
      }),
    };
  });
  const comparisons = sweep.comparisons.map((spec) => {
    const of = sweep.measures.find(({ name }) => name === spec.measure) as EvalMeasure; // checked by the file's schema
    const seed = `${sweep.name} ${spec.measure}`;
    return { spec, compared: compare(spec, of, cells, resultsOf, { ...bootstrap, seed }) };
  });
  const charts = figureOf(sweep, results, reports);
  const svg = figureSvg(sweep.title, charts);
  const problems = problemCounts(sweep, results);
  const warnings = problemWarnings(problems, sweep.measures, reports, comparisons);
  return { sweep, planned, results, cells: reports, comparisons, problems, warnings, charts, svg };
}

/** `2 diverged`: how many runs ended for another reason than `expected`. */
function endsOf(results: readonly RunResult[], expected: string): string[] {
  const reasons = results.map(({ reason }) => reason).filter((reason) => reason !== expected);
  return [...new Set(reasons)].map(
    (reason) => `${reasons.filter((other) => other === reason).length} ended by ${reason}`,
  );
}
