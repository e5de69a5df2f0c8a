import { quantile } from '../base/statistics.js';

/** How far the policy in training has moved from the one that sampled, over a set of tokens. */
export interface OffPolicyStats {
  readonly tokens: number;
  /** mean(q - p): estimates KL(behavior ‖ current) without bias; may come out negative. */
  readonly klV1: number;
  /** mean((q - p)² / 2): never negative, lower variance, biased away from small divergences. */
  readonly klV2: number;
  /** mean(e^(p-q) - 1 - (p - q)): never negative and without bias (Schulman 2020, "k3"). */
  readonly klK3: number;
  /** (Σr)² / (n·Σr²): 1 on-policy; 1/n when one token carries all the weight. */
  readonly essRatio: number;
  /** Mean of -q: the entropy of the behavior policy, estimated from the tokens that it sampled. */
  readonly sampledEntropy: number;
  /** Quantiles of the importance ratio r = e^(p-q). */
  readonly ratio: { readonly p01: number; readonly p50: number; readonly p99: number };
  /** Shares of tokens whose ratio lies outside the loss's bounds. */
  readonly belowShare: number;
  readonly aboveShare: number;
}

/** Pairs of one token's logprobs: q of the behavior policy, p of the current one. */
export interface TokenPairs {
  readonly behavior: ArrayLike<number>; // [T]
  readonly current: ArrayLike<number>; // [T]
}

/** The pairs of a rollout, and the versions that sampled its tokens, with the number of tokens of each. */
export interface VersionedPairs extends TokenPairs {
  readonly behavior: Float32Array;
  readonly current: Float32Array;
  readonly versions: readonly (readonly [version: number, tokens: number])[];
}

/** The ratio's bounds in the loss: outside them a token is clipped or masked. */
export interface RatioBounds {
  readonly low: number;
  readonly high: number;
}

/** No clipping, as in `importance_sampling` and `dro`. */
export const unbounded: RatioBounds = { low: 0, high: Infinity };

/**
 * The divergences, in the names and with the signs of tinker-cookbook (`kl_sample_train_v1`, `_v2`).
 * Log-ratios are clamped to ±20 before exponentiation, as in verl, so that one broken token cannot make
 * every statistic infinite.
 *
 * @param rollouts only tokens that the policy sampled; prompt positions do not belong here.
 * @returns undefined when there is no token.
 * @throws {RangeError} if a rollout's two arrays have different lengths.
 */
export function offPolicyStats(
  rollouts: readonly TokenPairs[],
  bounds: RatioBounds,
): OffPolicyStats | undefined {
  const total = rollouts.reduce((sum, { behavior }) => sum + behavior.length, 0);
  if (total === 0) return undefined;

  const ratios = new Float64Array(total);
  let n = 0;
  let gapSum = 0;
  let squareSum = 0;
  let k3Sum = 0;
  let ratioSum = 0;
  let ratioSquareSum = 0;
  let behaviorSum = 0;
  let below = 0;
  let above = 0;
  for (const { behavior, current } of rollouts) {
    if (behavior.length !== current.length) {
      throw new RangeError(
        `offPolicyStats: ${behavior.length} behavior logprobs but ${current.length} current ones`,
      );
    }
    for (let t = 0; t < behavior.length; t++) {
      const q = behavior[t]!;
      const logRatio = Math.min(Math.max(current[t]! - q, -20), 20);
      const ratio = Math.exp(logRatio);
      ratios[n++] = ratio;
      gapSum -= logRatio;
      squareSum += 0.5 * logRatio * logRatio;
      k3Sum += Math.expm1(logRatio) - logRatio;
      ratioSum += ratio;
      ratioSquareSum += ratio * ratio;
      behaviorSum -= q;
      if (ratio < bounds.low) below++;
      if (ratio > bounds.high) above++;
    }
  }
  ratios.sort();
  return {
    tokens: n,
    klV1: gapSum / n,
    klV2: squareSum / n,
    klK3: k3Sum / n,
    essRatio: (ratioSum * ratioSum) / (n * ratioSquareSum),
    sampledEntropy: behaviorSum / n,
    ratio: {
      p01: quantile(ratios, 0.01),
      p50: quantile(ratios, 0.5),
      p99: quantile(ratios, 0.99),
    },
    belowShare: below / n,
    aboveShare: above / n,
  };
}

/**
 * The statistics by staleness, in rising order, which show the cost of stale data. A token counts by the
 * version that sampled it, not by the oldest of its group: a rollout that adopted a version on its way has
 * tokens of several ages.
 *
 * @param stalenessOf the steps between a version and the one in training.
 */
export function offPolicyStatsByStaleness(
  rollouts: readonly VersionedPairs[],
  stalenessOf: (version: number) => number,
  bounds: RatioBounds,
): Map<number, OffPolicyStats> {
  const byStaleness = new Map<number, TokenPairs[]>();
  for (const { behavior, current, versions } of rollouts) {
    let end = 0;
    for (const [version, tokens] of versions) {
      const start = end;
      end += tokens;
      const run = {
        behavior: behavior.subarray(start, end),
        current: current.subarray(start, end),
      };
      const staleness = stalenessOf(version);
      const runs = byStaleness.get(staleness);
      if (runs === undefined) byStaleness.set(staleness, [run]);
      else runs.push(run);
    }
  }
  const stats = [...byStaleness].flatMap(([staleness, runs]): [number, OffPolicyStats][] => {
    const ofRuns = offPolicyStats(runs, bounds);
    return ofRuns === undefined ? [] : [[staleness, ofRuns]];
  });
  return new Map(stats.sort(([a], [b]) => a - b));
}

/** Number of rollouts by completion length in tokens. */
export type LengthCounts = ReadonlyMap<number, number>;

/**
 * The Kolmogorov–Smirnov distance between two length distributions: the largest gap between their
 * cumulative shares. 0 if they are equal; 1 if all of one is shorter than all of the other.
 *
 * Computed between all rollouts and those used, it shows whether the run loses those that take long,
 * which are the long and hard ones.
 *
 * @returns 0 when either has no rollout yet.
 */
export function ksDistance(a: LengthCounts, b: LengthCounts): number {
  const totalA = total(a);
  const totalB = total(b);
  if (totalA === 0 || totalB === 0) return 0;

  const lengths = [...new Set([...a.keys(), ...b.keys()])].sort((x, y) => x - y);
  let shareA = 0;
  let shareB = 0;
  let distance = 0;
  for (const length of lengths) {
    shareA += (a.get(length) ?? 0) / totalA;
    shareB += (b.get(length) ?? 0) / totalB;
    distance = Math.max(distance, Math.abs(shareA - shareB));
  }
  return distance;
}

function total(counts: LengthCounts): number {
  return [...counts.values()].reduce((sum, count) => sum + count, 0);
}
