export type WeightKind = 'token' | 'sequence';

/**
 * ln(π_proximal / π_behavior) of each token, held within ±20 as in verl: one broken token must not
 * turn a weight into infinity.
 *
 * @param proximal [T] logprobs under the policy as the step finds it.
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
  return Float64Array.from(behavior, (q, t) => held(proximal[t]! - q));
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
 * By token: min(r, cap). Biased, since the ratios of the tokens before are left out, and of small
 * variance.
 *
 * Cost: one forward. Source: the ρ of IMPALA (Espeholt et al. 2018, arXiv:1802.01561); for language
 * models AIPO (Wu et al. 2025, arXiv:2505.24034).
 */
export function tokenWeights(logRatios: Float64Array, cap: number): Float64Array {
  return logRatios.map((logRatio) => Math.min(Math.exp(logRatio), cap));
}

/**
 * By sequence: min(Π r, cap), the same for every token. Unbiased up to the truncation; its variance
 * grows with the length.
 *
 * Cost: one forward. Source: verl's Rollout Correction (`docs/algo/rollout_corr.md`).
 */
export function sequenceWeights(logRatios: Float64Array, cap: number): Float64Array {
  const logRatio = held(logRatios.reduce((total, value) => total + value, 0));
  return new Float64Array(logRatios.length).fill(Math.min(Math.exp(logRatio), cap));
}

function held(logRatio: number): number {
  return Math.min(Math.max(logRatio, -20), 20);
}
