import type { Correction } from './objective.js';
import { mean, sum } from '../base/statistics.js';

/** One rollout, each array [T]. */
interface UncorrectedTokens {
  readonly behavior: ArrayLike<number>; // logprobs of the policy that sampled
  readonly proximal: ArrayLike<number>; // logprobs of the policy at the start of the step
  readonly advantages: ArrayLike<number>;
}

/** The corrected inputs of the backend's loss for one rollout, with the weights and masks applied. */
export interface CorrectedTokens {
  readonly logprobs: Float64Array; // [T] the denominator of the loss's ratio
  readonly advantages: Float64Array; // [T]
  readonly weights: Float64Array; // [T] importance weights, also of masked tokens; 1 without any
  readonly sides: MaskSides; // [T]
}

/**
 * Corrects a rollout by rewriting the inputs of the backend's loss, so that every loss can be corrected
 * through an API without corrections.
 *
 * - A mask sets the advantage to 0 and replaces the token's logprob by the proximal one, which also
 *   removes `dro`'s quadratic pull and unbounded ratios.
 * - Weights w multiply the advantage, and the loss's ratio is taken against the proximal policy.
 *   With `ppo` this is decoupled PPO: w·min(r·A, clip(r)·A), r = π / π_proximal and w the truncated
 *   π_proximal / π_behavior (Hilton et al. 2022, arXiv:2110.00641; AReaL, Fu et al. 2025,
 *   arXiv:2505.24298). Before the first optimizer step on a batch r is 1, and every loss has the
 *   gradient of truncated importance sampling.
 *
 * Cost: one `forward` besides the `forward_backward`, answered before the latter is sent.
 *
 * @throws {RangeError} if the arrays of the rollout differ in length.
 */
export function correctTokens(
  { weights: weighting, mask }: Correction,
  { behavior, proximal, advantages }: UncorrectedTokens,
): CorrectedTokens {
  const logRatios = logRatiosOf(proximal, behavior);
  const { length } = logRatios;
  if (advantages.length !== length) {
    throw new RangeError(`${advantages.length} advantages for ${length} tokens`);
  }
  const isWeighted = weighting.kind !== 'none';
  const weights = isWeighted
    ? importanceWeights(weighting.kind, logRatios, weighting.cap)
    : new Float64Array(length).fill(1);
  const sides =
    mask.kind === 'none' ? new Int8Array(length) : maskSides(mask.kind, logRatios, mask);

  const anchor = (t: number) => (isWeighted || sides[t] !== 0 ? proximal[t]! : behavior[t]!);
  const advantage = (t: number) => (sides[t] === 0 ? weights[t]! * advantages[t]! : 0);
  return {
    logprobs: weights.map((_, t) => anchor(t)),
    advantages: weights.map((_, t) => advantage(t)),
    weights,
    sides,
  };
}

/** Whether a correction needs the proximal logprobs and so one more pass. */
export function needsProximal({ weights, mask }: Correction): boolean {
  return weights.kind !== 'none' || mask.kind !== 'none';
}

type WeightKind = 'token' | 'sequence';

/**
 * ln(π_proximal / π_behavior) of each token, clamped to ±20 as in verl, so that one broken token cannot
 * make a weight infinite.
 *
 * @param proximal [T] logprobs under the policy at the start of the step.
 * @param behavior [T] logprobs under the policy that sampled.
 * @throws {RangeError} if the two differ in length.
 */
export function logRatiosOf(
  proximal: ArrayLike<number>,
  behavior: ArrayLike<number>,
): Float64Array {
  if (proximal.length !== behavior.length) {
    throw new RangeError(`${proximal.length} proximal logprobs, ${behavior.length} of behavior`);
  }
  return Float64Array.from(behavior, (q, t) => clampLogRatio(proximal[t]! - q));
}

/**
 * Truncated importance weights of one rollout's tokens.
 *
 * Cost of either kind: one `forward` besides the `forward_backward`. Where the batch makes a single
 * optimizer step, `cispo` with bounds (0, cap) gives the gradient of `token` without it.
 *
 * @param logRatios [T]
 * @returns [T]
 */
export function importanceWeights(
  kind: WeightKind,
  logRatios: Float64Array,
  cap: number,
): Float64Array {
  return kind === 'token' ? tokenWeights(logRatios, cap) : sequenceWeights(logRatios, cap);
}

/**
 * By token: min(r, cap). Biased, because the ratios of earlier tokens are left out, but of low variance.
 *
 * Cost: one forward. Source: the ρ of IMPALA (Espeholt et al. 2018, arXiv:1802.01561); for language
 * models AIPO (Wu et al. 2025, arXiv:2505.24034).
 */
function tokenWeights(logRatios: Float64Array, cap: number): Float64Array {
  return logRatios.map((logRatio) => Math.min(Math.exp(logRatio), cap));
}

/**
 * By sequence: min(Π r, cap), the same for every token. Unbiased up to the truncation; its variance
 * grows with the length.
 *
 * Cost: one forward. Source: verl's Rollout Correction (`docs/algo/rollout_corr.md`).
 */
function sequenceWeights(logRatios: Float64Array, cap: number): Float64Array {
  const logRatio = clampLogRatio(logRatios.reduce((total, value) => total + value, 0));
  return new Float64Array(logRatios.length).fill(Math.min(Math.exp(logRatio), cap));
}

function clampLogRatio(logRatio: number): number {
  return Math.min(Math.max(logRatio, -20), 20);
}

/** The bounds of a mask on an importance ratio, inclusive. */
interface MaskBounds {
  readonly low: number;
  readonly high: number;
}
type MaskKind = 'icepop' | 'sequence' | 'geometric';

/** [T] -1: masked, ratio below the bounds; 1: masked, above them; 0: kept. */
type MaskSides = Int8Array;

/**
 * Masks tokens that are too far off-policy to learn from, by the log-ratios of one rollout.
 *
 * Cost of every mask: one `forward` besides the `forward_backward`, because the API has no masks and
 * the learner needs the ratios first.
 *
 * @param logRatios [T] ln(π_proximal / π_behavior) of each token.
 */
export function maskSides(kind: MaskKind, logRatios: Float64Array, bounds: MaskBounds): MaskSides {
  switch (kind) {
    case 'icepop':
      return icepopMask(logRatios, bounds);
    case 'sequence':
      return sequenceMask(logRatios, bounds);
    case 'geometric':
      return geometricMask(logRatios, bounds);
  }
}

/**
 * IcePop: masks a token whose own ratio is out of bounds, whatever the sign of its advantage.
 *
 * Cost: one forward. Source: Ring-1T (Ling Team 2025, arXiv:2510.18855), with bounds 0.5 and 5.
 */
function icepopMask(logRatios: Float64Array, bounds: MaskBounds): MaskSides {
  return Int8Array.from(logRatios, (logRatio) => sideOf(Math.exp(logRatio), bounds));
}

/**
 * Masks a whole rollout when the product of its ratios is out of bounds. The product is the ratio of
 * the whole answer's probabilities, and its spread grows with the length of the answer.
 *
 * Cost: one forward. Source: masked importance sampling (Liu et al. 2025, "When Speed Kills
 * Stability"), as in verl and OpenRLHF.
 */
function sequenceMask(logRatios: Float64Array, bounds: MaskBounds): MaskSides {
  return new Int8Array(logRatios.length).fill(sideOf(Math.exp(sum(logRatios)), bounds));
}

/**
 * Masks a whole rollout when the geometric mean of its ratios is out of bounds. This detects a drift of
 * all its tokens, whatever their number.
 *
 * Cost: one forward. Source: GSPO's ratio (Zheng et al. 2025, arXiv:2507.18071), as a mask in verl
 * and SkyRL, which takes 0.99 and 1.01 for answers of thousands of tokens.
 */
function geometricMask(logRatios: Float64Array, bounds: MaskBounds): MaskSides {
  const logMean = logRatios.length === 0 ? 0 : mean(logRatios);
  return new Int8Array(logRatios.length).fill(sideOf(Math.exp(logMean), bounds));
}

function sideOf(ratio: number, { low, high }: MaskBounds): -1 | 0 | 1 {
  return ratio < low ? -1 : ratio > high ? 1 : 0;
}
