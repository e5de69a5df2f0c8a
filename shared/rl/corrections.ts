import type { Correction } from './objective.js';
import { importanceWeights, logRatiosOf } from './importance-weights.js';
import { maskSides, type MaskSides } from './masks.js';

/** One rollout, each array [T]. */
export interface UncorrectedTokens {
  readonly behavior: ArrayLike<number>; // logprobs of the policy that sampled
  readonly proximal: ArrayLike<number>; // logprobs of the policy as the step finds it
  readonly advantages: ArrayLike<number>;
}

/** What the backend's loss is given for one rollout, and what was done to it. */
export interface CorrectedTokens {
  readonly logprobs: Float64Array; // [T] that the loss takes its ratio against
  readonly advantages: Float64Array; // [T]
  readonly weights: Float64Array; // [T] importance weights, also of masked tokens; 1 without any
  readonly sides: MaskSides; // [T]
}

/**
 * Corrects a rollout by rewriting what the backend's loss is given, so that every loss can be
 * corrected through an API that has no word for it.
 *
 * - A mask takes away the advantage. A masked token's logprob becomes the proximal one, so that
 *   neither `dro`'s pull nor a ratio without bounds remains of it.
 * - Weights w multiply the advantage, and the loss's ratio becomes that against the proximal policy.
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

/** Whether a correction needs the proximal logprobs, and with them one more pass. */
export function needsProximal({ weights, mask }: Correction): boolean {
  return weights.kind !== 'none' || mask.kind !== 'none';
}
