import type { Arithmetic } from '../base/arithmetic.js';
import { mean as meanOf } from '../base/statistics.js';

/** How far two honest computations of the same logprobs may differ, in nats. */
export interface LogprobBand {
  readonly largest: number; // |difference| of one logprob
  readonly mean: number; // |difference|, over all but the largest quarter of them
  /** The bits of the significand to which a logprob may be rounded when it is reported; undefined: those of fp32. */
  readonly reportedBits?: number;
}

/** By the coarser of the two arithmetics. docs/policy-identity.md has the measurements. */
export const logprobBands: Readonly<Record<Arithmetic, LogprobBand>> = {
  fp32: { largest: 1e-3, mean: 2e-4 },
  bf16: { largest: 20, mean: 0.1, reportedBits: 8 }, // single tokens may be far off
  fp8: { largest: 20, mean: 0.2, reportedBits: 8 },
};

/**
 * If a sampler is this many times closer to an earlier version than to the version that it claims, its claim is false.
 * This separates versions even in coarse arithmetics, whose bands must be wide enough for any model.
 */
const closerBy = 3;

/**
 * How much further two honest computations may be apart if the sampler has the trainer's adapter only in bfloat16.
 * docs/policy-identity.md has the measurements.
 */
export const roundedAdapterBand: LogprobBand = { largest: 0.05, mean: 0.001 };

/** The band of an arithmetic, for an adapter that is the trainer's own or rounded to half precision. */
export function bandOf(arithmetic: Arithmetic, isAdapterRounded: boolean): LogprobBand {
  const band = logprobBands[arithmetic];
  if (!isAdapterRounded) return band;
  return {
    ...band,
    largest: band.largest + roundedAdapterBand.largest,
    mean: band.mean + roundedAdapterBand.mean,
  };
}

/** Logprobs of given tokens as a sampler computes them. */
export interface TokenScores {
  readonly logprobs: Float32Array; // [n], natural log
  /** [n] Whether the logprob is only an upper bound, because the sampler did not show the token. */
  readonly isBound: readonly boolean[];
  /** Why tokens were drawn, for the message of a refusal, if other ways were tried. */
  readonly whyDrawn?: string;
}

/** How a sampler's logprobs compare with those of a canary. */
export interface CanaryComparison {
  readonly isReproduced: boolean;
  readonly difference: number; // the largest, in nats; at most `brokenDifference`
  readonly place: number; // index of the largest difference
  readonly mean: number; // |difference| over all but the largest quarter, in nats
  readonly compared: number; // how many logprobs were exact, not only upper bounds
  /** The earlier version that the sampler is closer to; undefined: none. */
  readonly closerTo?: number;
}

/** What an earlier version gives the tokens of a canary. */
interface EarlierScores {
  readonly version: number;
  readonly logprobs: Float32Array; // [n], the trainer's
}

/** Stands for the difference of a logprob that is not finite; a message cannot carry infinity. */
export const brokenDifference = 1e6;

/** The least share of the logprobs that must be known, since a sampler that shows nothing proves nothing. */
const leastCompared = 0.5;

/**
 * Compares the logprobs of a canary with those of a sampler, which must be within the band, and not closer to an earlier version.
 *
 * An upper bound counts as different only by what the expected logprob exceeds it. A logprob that is not finite counts
 * as different by `brokenDifference`.
 *
 * @param expected [n] the trainer's, natural log.
 */
export function compareCanary(
  expected: Float32Array,
  scores: TokenScores,
  band: LogprobBand,
  earlier: readonly EarlierScores[] = [],
): CanaryComparison {
  const differences = differencesFrom(expected, scores, band);
  const difference = Math.max(...differences);
  const place = differences.indexOf(difference);
  const compared = scores.isBound.filter((isBound) => !isBound).length;
  const mean = meanOfMost(differences);
  const isShown = compared >= leastCompared * expected.length;
  const closerTo = earlier.find(
    ({ logprobs }) => closerBy * meanOfMost(differencesFrom(logprobs, scores, band)) < mean,
  );
  const isWithin = difference <= band.largest && mean <= band.mean;
  return {
    isReproduced: isShown && isWithin && closerTo === undefined,
    ...{ difference, place, mean, compared },
    ...(closerTo !== undefined && { closerTo: closerTo.version }),
  };
}

/** How far each logprob of a sampler is from the trainer's, less what rounding explains. */
function differencesFrom(
  expected: Float32Array,
  { logprobs, isBound }: TokenScores,
  band: LogprobBand,
): number[] {
  return Array.from(expected, (wanted, i) => {
    const gap = wanted - (logprobs[i] ?? NaN);
    const apart = isBound[i] === true ? Math.max(0, gap) : Math.abs(gap);
    const off = Math.max(0, apart - roundingOf(wanted, band.reportedBits));
    return Number.isFinite(off) ? Math.min(off, brokenDifference) : brokenDifference;
  });
}

/** Without the largest quarter: in a coarse arithmetic a few tokens are far off, which would hide what all others have in common. */
function meanOfMost(differences: readonly number[]): number {
  const sorted = [...differences].sort((a, b) => a - b);
  return meanOf(sorted.slice(0, Math.ceil(0.75 * sorted.length)));
}

/**
 * The largest rounding error of a logprob that is reported with fewer bits; 0 for a probable token. TuFT's
 * transformers backend reports logprobs in the dtype of the model: in bfloat16 -12 may stand for -12.03. For probable
 * tokens the error is smaller, and the bands contain it. But all tokens of an untrained model are improbable.
 */
function roundingOf(logprob: number, bits: number | undefined): number {
  if (bits === undefined || !(logprob < Math.log(leastProbability))) return 0;
  return 2 ** (Math.floor(Math.log2(-logprob)) - bits);
}

/** A token that a canary could contain. */
export interface Candidate {
  readonly text: number;
  readonly index: number;
  readonly logprob: number; // under the version's weights
}

/** The least probability at which some 60 draws still show a token nearly always. */
const leastProbability = 1 / 16;

/**
 * The places whose logprobs depend most on the weights. A change of a logit by d changes the token's logprob by
 * (1 - p)·d, so a certain token shows nothing; an improbable one may not be shown by a sampler that reports only
 * drawn or probable tokens. So tokens are taken by their -p·ln p, and improbable ones last.
 *
 * @param candidates with finite logprobs.
 * @returns at most `count`, in the order of texts and indices.
 */
export function choosePlaces(candidates: readonly Candidate[], count: number): Candidate[] {
  const worth = ({ logprob }: Candidate) => {
    const p = Math.exp(logprob);
    return -p * logprob - (p < leastProbability ? 1 : 0);
  };
  return [...candidates]
    .sort((a, b) => worth(b) - worth(a))
    .slice(0, count)
    .sort((a, b) => a.text - b.text || a.index - b.index);
}

/**
 * An upper bound on the logprob of a token that was not among n draws: had it been more probable, its absence would have had
 * a chance below 10⁻¹².
 *
 * @param draws n, at least 1.
 */
export function boundOfUndrawn(draws: number): number {
  return Math.log1p(-(1e-12 ** (1 / draws)));
}
