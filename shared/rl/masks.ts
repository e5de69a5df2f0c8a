import { mean, sum } from '../base/statistics.js';

/** The bounds of a mask on an importance ratio, inclusive. */
export interface MaskBounds {
  readonly low: number;
  readonly high: number;
}
export type MaskKind = 'icepop' | 'sequence' | 'geometric';

/** [T] What becomes of each token: -1 masked below the bounds, 1 above them, 0 kept. */
export type MaskSides = Int8Array;

/**
 * Masks what is too far off-policy to learn from, by the log-ratios of one rollout.
 *
 * Cost of every mask: one `forward` besides the `forward_backward`, since the API has no word for
 * them and the ratios must be known here first.
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
 * IcePop: a token whose own ratio is out of bounds is masked, whichever sign its advantage has.
 *
 * Cost: one forward. Source: Ring-1T (Ling Team 2025, arXiv:2510.18855), with bounds 0.5 and 5.
 */
export function icepopMask(logRatios: Float64Array, bounds: MaskBounds): MaskSides {
  return Int8Array.from(logRatios, (logRatio) => sideOf(Math.exp(logRatio), bounds));
}

/**
 * A rollout is masked as a whole when the product of its ratios is out of bounds: that is how much
 * likelier the whole answer has become, and it strays the more the longer the answer is.
 *
 * Cost: one forward. Source: masked importance sampling (Liu et al. 2025, "When Speed Kills
 * Stability"), as in verl and OpenRLHF.
 */
export function sequenceMask(logRatios: Float64Array, bounds: MaskBounds): MaskSides {
  return new Int8Array(logRatios.length).fill(sideOf(Math.exp(sum(logRatios)), bounds));
}

/**
 * A rollout is masked as a whole when the geometric mean of its ratios is out of bounds: a drift of
 * all of its tokens, whatever their number.
 *
 * Cost: one forward. Source: GSPO's ratio (Zheng et al. 2025, arXiv:2507.18071), as a mask in verl
 * and SkyRL, which takes 0.99 and 1.01 for answers of thousands of tokens.
 */
export function geometricMask(logRatios: Float64Array, bounds: MaskBounds): MaskSides {
  const logMean = logRatios.length === 0 ? 0 : mean(logRatios);
  return new Int8Array(logRatios.length).fill(sideOf(Math.exp(logMean), bounds));
}

function sideOf(ratio: number, { low, high }: MaskBounds): -1 | 0 | 1 {
  return ratio < low ? -1 : ratio > high ? 1 : 0;
}
