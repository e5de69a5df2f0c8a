/** A token that an actor sent, and the distribution from which it should have been drawn. */
export interface KnownPosition {
  readonly logprob: number; // of the token, by the policy that it names
  readonly top: ArrayLike<number>; // logprobs of the most probable tokens there, by the same policy
}

/**
 * The shares by which a bet tilts the policy: the bet with tilt λ is that tokens are drawn from p^(1-λ), normalized,
 * in place of p. Below 0 they are more probable than they should be, as of an actor that keeps what looks right.
 */
export const tilts = [-0.8, -0.4, -0.2, -0.1, 0.1, 0.2, 0.4] as const;

/**
 * The evidence that rollouts were not drawn but selected: that the actor drew several and sent those which it liked.
 * Their logprobs are honest; what is odd is how probable they are. Under honest draws the mean of Σ(-ln p - H), with H
 * the entropy of each position, is 0, and this is a sequential test of that.
 *
 * Why: let p be the distribution of a position, and Z = Σ_v p_v^(1-λ). A token drawn from p has
 * E[p^(-λ)/Z] = Σ_v p_v · p_v^(-λ)/Z = 1, so the product over tokens, rollouts and groups is a martingale that
 * starts at 1. For small λ its logarithm is λ·(-ln p - H) - λ²·Var(ln p)/2. By Ville's inequality it ever exceeds
 * 1/α with a chance of at most α, however long an actor is watched, and so does the mean over several λ.
 *
 * Both p and Z are the policy's own, never what an actor claims. Where only the most probable tokens are known, Z is
 * replaced by an upper bound, so that the product can only be smaller. And where the actor may have drawn from a q with
 * |ln q - ln p| ≤ band, for its arithmetic is another, q ≤ e^band · p, so each token pays `band`.
 *
 * Source: Ville 1939; Grünwald, de Heide, Koolen 2024 (Safe testing).
 *
 * @param vocabSize number of tokens in all, of which `top` has some.
 * @param band largest difference between the logprobs of sampler and trainer, in nats.
 * @returns nats for each of `tilts`.
 */
export function selectionEvidence(
  positions: Iterable<KnownPosition>,
  vocabSize: number,
  band: number,
): Float64Array {
  const nats = new Float64Array(tilts.length);
  for (const { logprob, top } of positions) {
    for (const [i, tilt] of tilts.entries()) {
      nats[i]! += -tilt * logprob - logNormalizer(top, vocabSize, tilt) - band;
    }
  }
  return nats;
}

/** The evidence of all tilts together, in nats: the logarithm of the mean of the products. */
export function combinedEvidence(nats: Float64Array): number {
  const largest = nats.reduce((a, b) => Math.max(a, b), -Infinity);
  const sum = nats.reduce((total, each) => total + Math.exp(each - largest), 0);
  return largest + Math.log(sum / nats.length);
}

/** An upper bound of ln Σ_v p_v^(1-tilt), exact if `top` has every token. */
function logNormalizer(top: ArrayLike<number>, vocabSize: number, tilt: number): number {
  let known = 0; // probability
  let sum = 0;
  let least = 0; // logprob
  for (let i = 0; i < top.length; i++) {
    known += Math.exp(top[i]!);
    sum += Math.exp((1 - tilt) * top[i]!);
    least = Math.min(least, top[i]!);
  }
  const others = vocabSize - top.length;
  const rest = Math.max(0, 1 - known);
  if (others <= 0 || rest === 0) return Math.log(sum);
  // The rest is spread over the other tokens, none of which is more probable than the least of the top. p^(1-λ) is
  // concave for λ > 0, so an equal spread has the largest sum; and convex for λ < 0, so p ≤ least bounds it.
  const bound = tilt > 0 ? others ** tilt * rest ** (1 - tilt) : rest * Math.exp(-tilt * least);
  return Math.log(sum + bound);
}
