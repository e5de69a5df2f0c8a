import type { Random } from '../../shared/base/random.js';
import { mean, quantile } from '../../shared/base/statistics.js';

/** Scores of the same problems in several runs: [S][P] by seed and problem, each 0 to 1. */
export type Scores = readonly (readonly number[])[];

/** A mean and the interval of most repetitions. */
export interface Estimate {
  readonly mean: number;
  readonly low: number;
  readonly high: number;
}

export interface BootstrapOptions {
  readonly resamples: number;
  readonly confidence: number; // 0.95
  readonly random: Random;
}

/**
 * The mean score with its percentile-bootstrap interval: what other problems would give for the same runs.
 *
 * @throws {RangeError} if there is no score, or the runs have different numbers of problems.
 */
export function bootstrapMean(scores: Scores, options: BootstrapOptions): Estimate {
  const problems = checkedWidth(scores);
  const { resamples, confidence, random } = options;
  const ofProblems = columnMeans(scores);
  const draw = () => {
    let sum = 0;
    for (let i = 0; i < problems; i++) sum += ofProblems[random.int(problems)]!;
    return sum / problems;
  };
  const means = Float64Array.from({ length: resamples }, draw).sort();
  const tail = (1 - confidence) / 2;
  return {
    mean: mean(ofProblems),
    low: quantile(means, tail),
    high: quantile(means, 1 - tail),
  };
}

/**
 * Half the width of the 95 % interval of a mean by Student's t, which supposes that the values are normal.
 *
 * @returns undefined for a single value.
 */
export function halfTInterval(values: readonly number[]): number | undefined {
  const n = values.length;
  if (n < 2) return undefined;
  const center = mean(values);
  const variance = values.reduce((sum, value) => sum + (value - center) ** 2, 0) / (n - 1);
  const quantile = tQuantiles[Math.min(n - 1, tQuantiles.length) - 1]!;
  return quantile * Math.sqrt(variance / n);
}

/** The 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom; for more the last is slightly too wide. */
const tQuantiles = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

/** A difference with two intervals. */
export interface PairedDifference {
  readonly byProblems: Estimate; // what other problems would give for the same runs
  /** What other seeds would give; undefined with one pair. */
  readonly bySeeds: Estimate | undefined;
}

/**
 * By how much one setting scores better than another, pair by pair: the same problem, and run by run
 * in the order of the seeds. Differences between problems and between seeds cancel out.
 *
 * The interval over seeds is Student's t of the mean difference of each pair, and no narrower than the one over
 * problems. A bootstrap over three seeds would stay between the smallest and the largest, and cover the true
 * difference three times in four.
 *
 * Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapters 8 and 13.
 *
 * @throws {RangeError} if the two do not pair up.
 */
export function pairedDifference(
  scores: Scores,
  baseline: Scores,
  options: BootstrapOptions,
): PairedDifference {
  if (scores.length !== baseline.length) {
    throw new RangeError(`${scores.length} runs cannot be paired with ${baseline.length}`);
  }
  const differences = scores.map((row, s) => {
    const other = baseline[s]!;
    if (row.length !== other.length) {
      throw new RangeError(`${row.length} problems cannot be paired with ${other.length}`);
    }
    return row.map((score, p) => score - other[p]!);
  });
  const byProblems = bootstrapMean(differences, options);
  const half = halfTInterval(differences.map(mean));
  const bySeeds = half === undefined ? undefined : widened(byProblems, half);
  return { byProblems, bySeeds };
}

function widened({ mean, low, high }: Estimate, half: number): Estimate {
  return { mean, low: Math.min(low, mean - half), high: Math.max(high, mean + half) };
}

/** [P] the mean of each problem over the seeds. */
function columnMeans(scores: Scores): number[] {
  return scores[0]!.map((_, p) => mean(scores.map((row) => row[p]!)));
}

function checkedWidth(scores: Scores): number {
  const problems = scores[0]?.length ?? 0;
  if (problems === 0) throw new RangeError('bootstrap: there are no scores');
  const other = scores.find((row) => row.length !== problems);
  if (other !== undefined) {
    throw new RangeError(`bootstrap: runs of ${problems} and of ${other.length} problems`);
  }
  return problems;
}
