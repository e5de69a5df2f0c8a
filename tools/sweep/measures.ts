import { mean } from '../../shared/base/statistics.js';
import { passAtK } from '../../shared/rl/pass-at-k.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import {
  bootstrapMean,
  halfTInterval,
  type BootstrapOptions,
  type Estimate,
  type Scores,
} from './bootstrap.js';
import type { ProblemsOfRate } from './problem-counts.js';
import type { RunResult } from './results.js';
import { triesOf, type EvalMeasure, type Measure } from './sweep-file.js';

/** A measure of one cell, over its seeds. */
export interface Measured extends Estimate {
  /** `interval`: by bootstrap over the problems; `range`: from the smallest seed to the largest. */
  readonly kind: 'interval' | 'range';
  /** Half the width of the 95 % t-interval over the seeds; undefined for a range or with one seed. */
  readonly overSeeds: number | undefined;
  readonly runs: number;
  readonly problems: ProblemsOfRate | undefined; // of a rate
}

/**
 * The value of a measure over runs that differ only in their seed.
 *
 * @returns undefined if none of them has it, as pass@16 after 4 tries, or if they are of different numbers of problems.
 */
export function measure(
  spec: Measure,
  results: readonly RunResult[],
  options: BootstrapOptions,
): Measured | undefined {
  if (spec.from === 'eval') {
    const scores = results.flatMap((result) => {
      const found = scoresOf(result, spec);
      return found === undefined ? [] : [found];
    });
    if (scores.length === 0 || !isOfEqualLengths(scores)) return undefined;
    const [complete] = answeredByAll([scores]);
    if (complete![0]!.length === 0) return undefined;
    const overSeeds = halfTInterval(complete!.map(mean));
    return {
      ...bootstrapMean(complete!, options),
      kind: 'interval',
      overSeeds,
      runs: scores.length,
      problems: problemsOf(scores, complete!),
    };
  }
  const values = results
    .map(({ steps }) => taken(spec, steps))
    .filter((value) => Number.isFinite(value));
  if (values.length === 0) return undefined;
  return {
    mean: mean(values),
    low: Math.min(...values),
    high: Math.max(...values),
    kind: 'range',
    overSeeds: undefined,
    runs: values.length,
    problems: undefined,
  };
}

/**
 * [P] the score of each problem in the evaluation that a measure names; NaN where a problem was not answered.
 *
 * @returns undefined if the run does not have this evaluation.
 */
export function scoresOf(
  { evals, furtherEvals, summary }: Pick<RunResult, 'evals' | 'furtherEvals' | 'summary'>,
  { at, key }: Pick<EvalMeasure, 'at' | 'key'>,
): number[] | undefined {
  // A run that diverged ends without an evaluation: an earlier one would hide how it ended.
  const end = evals.find(({ version }) => version === summary['version']);
  const found = at === 'start' ? evals[0] : at === 'end' ? end : furtherEvals[at];
  return found && scoresIn(found, key);
}

/** [P] the score of each problem; NaN where it was not answered often enough. @param key `sampled`, `greedy` or `pass@K`. */
export function scoresIn({ answers }: Pick<EvalResult, 'answers'>, key: string): number[] {
  const { correct, total } = key === 'greedy' ? answers.greedy : answers.sampled;
  const tries = triesOf(key);
  return correct.map((right, i) => {
    const answered = total[i]!;
    return answered < tries ? NaN : passAtK(tries, right, answered);
  });
}

/** The same tables without the problems that a run did not answer. */
export function answeredByAll(tables: readonly Scores[]): Scores[] {
  const rows = tables.flat();
  const isAnswered = (p: number) => rows.every((row) => !Number.isNaN(row[p]));
  return tables.map((table) => table.map((row) => row.filter((_, p) => isAnswered(p))));
}

/** Whether the runs were measured on as many problems, so that those can be the same. */
export function isOfEqualLengths(scores: Scores): boolean {
  return new Set(scores.map((row) => row.length)).size <= 1;
}

/** @param complete the scores without the problems that are left out. */
export function problemsOf(scores: Scores, complete: Scores): ProblemsOfRate {
  const all = scores[0]!.length;
  return { all, leftOut: all - complete[0]!.length };
}

/** One number from a column of the steps; NaN if no step has it. */
function taken(
  { key, take }: Extract<Measure, { from: 'steps' }>,
  steps: RunResult['steps'],
): number {
  const values = steps.flatMap((step) => step[key] ?? []);
  if (values.length === 0) return NaN;
  switch (take) {
    case 'end':
      return mean(values.slice(-Math.max(1, Math.round(values.length / 10))));
    case 'mean':
      return mean(values);
    case 'min':
      return Math.min(...values);
    case 'max':
      return Math.max(...values);
    case 'noise': {
      const jumps = values.slice(1).map((value, i) => value - values[i]!);
      const jump = Math.sqrt(mean(jumps.map((by) => by ** 2)) / 2); // of two values, hence the half
      return jump / Math.abs(mean(values));
    }
    case 'variation': {
      const center = mean(values);
      return Math.sqrt(mean(values.map((value) => (value - center) ** 2))) / Math.abs(center);
    }
  }
}
