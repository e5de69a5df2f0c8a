import { sum } from '../base/statistics.js';

/**
 * Evidence that an actor selects the answers that it sends: it draws several and sends the one that it likes, for
 * instance the first that is right. Its logprobs are honest. Three tests find it, and each requires less of the
 * sampler than the one before:
 *
 * - `distanceFromDraw`: whether each token is the one that the ticket's random number chooses. A sampler that draws by
 *   these numbers has no choice left, so one token is proof.
 * - `selectionEvidence`: whether tokens are as probable as draws from the policy are.
 * - `solveRateEvidence`: whether an actor solves more than the others do on tickets that were handed out blindly.
 */

/** A token that an actor sent, and the distribution from which it should have been drawn. */
export interface KnownPosition {
  readonly logprob: number; // of the token, by the policy that it names
  readonly top: ArrayLike<number>; // logprobs of the most probable tokens there, by the same policy
}

/**
 * How far a uniform number is from the interval that chooses a token. Sampling takes the token v with
 * C(v - 1) ≤ u·C(V - 1) < C(v), where C(v) sums the probabilities of the tokens 0 to v. So the distance is 0, up to rounding,
 * for a token that was drawn by u; a change of the probabilities by little changes it by as little.
 *
 * @param uniform u, in [0, 1).
 * @param token that was sent.
 * @param top.tokens the most probable tokens at this position; all of them, or the distance is a lower bound.
 * @param top.logprobs theirs, natural log.
 * @returns a probability; 0 for a token that is not among the most probable if u may be in their rest.
 */
export function distanceFromDraw(
  uniform: number,
  token: number,
  top: { readonly tokens: ArrayLike<number>; readonly logprobs: ArrayLike<number> },
  vocabSize: number,
): number {
  let [below, own, known] = [0, 0, 0];
  for (let i = 0; i < top.tokens.length; i++) {
    const probability = Math.exp(top.logprobs[i]!);
    known += probability;
    if (top.tokens[i]! < token) below += probability;
    else if (top.tokens[i] === token) own = probability;
  }
  // What is known of all tokens is a distribution up to rounding, and sampling divides by its sum.
  const rest = top.tokens.length === vocabSize ? 0 : Math.max(0, 1 - known);
  const at = uniform * (known + rest);
  return Math.max(0, below - at, at - (below + own + rest));
}

/**
 * The shares by which a bet tilts the policy: the bet with tilt λ is that tokens are drawn from p^(1-λ), normalized,
 * in place of p. Below 0 they are more probable than they should be, as of an actor that keeps what looks right.
 */
export const tilts = [-0.8, -0.4, -0.2, -0.1, 0.1, 0.2, 0.4] as const;

/**
 * The evidence that tokens are more or less probable than draws from the policy. Under honest draws the mean of Σ(-ln p - H), with H
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

/**
 * The bets of `solveRateEvidence`: that a group with the share x of right answers is exp(θ·x^power) times as probable for an actor
 * that selects. The higher powers look at groups that are nearly all right, which are rare where problems differ much.
 */
export const solveBets = [1, 4, 16].flatMap((power) =>
  [0.25, 0.5, 1, 2].map((theta) => ({ power, theta })),
);

/** How many groups of others are compared with one of an actor, at most; more would hardly add anything. */
const mostOthers = 8;

/**
 * The evidence that an actor solves more of its answers than the others do.
 *
 * Why: actors cannot choose their tickets. So of one group of the actor and m groups of the others, all of one policy
 * version, each of the m + 1 is equally likely to be the actor's. Let w be any positive function of a group's share of
 * right answers, x the share of the actor's group and y the shares of the others. Then w(x) / (w(x) + Σ w(y)) has the
 * mean 1 / (m + 1), and m + 1 times that quotient is a fair bet, however much the problems differ. Each group is in at
 * most one bet, so the product of the bets is a martingale.
 *
 * Source: Ville 1939; Vovk, Wang 2021 (E-values: calibration, combination and applications).
 *
 * @param own shares of right answers of the actor's groups, in the order of their arrival.
 * @param others those of the other actors' groups, by the same policy version.
 * @returns nats for each of `solveBets`.
 */
export function solveRateEvidence(own: readonly number[], others: readonly number[]): Float64Array {
  const nats = new Float64Array(solveBets.length);
  const bets = Math.min(own.length, others.length);
  const each = bets === 0 ? 0 : Math.min(mostOthers, Math.floor(others.length / bets));
  for (let b = 0; b < bets; b++) {
    const dealt = [own[b]!, ...others.slice(b * each, (b + 1) * each)];
    for (const [i, { power, theta }] of solveBets.entries()) {
      const weights = dealt.map((share) => Math.exp(theta * share ** power));
      nats[i]! += Math.log((dealt.length * weights[0]!) / sum(weights));
    }
  }
  return nats;
}

/**
 * The evidence against an actor after more of it. Each bet begins again where it has lost, so that an actor cannot offset a
 * later selection with past honesty. An honest one then exceeds ln(1/α) once in 1/α additions at most, on average.
 *
 * @param before nats of each bet, changed to those after `more`.
 * @returns the nats of all bets together.
 */
export function addEvidence(before: Float64Array, more: Float64Array): number {
  more.forEach((nats, i) => (before[i] = Math.max(0, before[i]!) + nats));
  return combinedEvidence(before);
}

/** The evidence of all bets together, in nats: the logarithm of the mean of the products. */
export function combinedEvidence(nats: Float64Array): number {
  const largest = nats.reduce((a, b) => Math.max(a, b), -Infinity);
  return largest + Math.log(sum(nats.map((each) => Math.exp(each - largest))) / nats.length);
}

/** An upper bound of ln Σ_v p_v^(1-tilt), exact if `top` has every token. */
function logNormalizer(top: ArrayLike<number>, vocabSize: number, tilt: number): number {
  let known = 0; // probability
  let tilted = 0;
  let least = 0; // logprob
  for (let i = 0; i < top.length; i++) {
    known += Math.exp(top[i]!);
    tilted += Math.exp((1 - tilt) * top[i]!);
    least = Math.min(least, top[i]!);
  }
  const others = vocabSize - top.length;
  const rest = Math.max(0, 1 - known);
  if (others <= 0 || rest === 0) return Math.log(tilted);
  // The rest is spread over the other tokens, none of which is more probable than the least of the top. p^(1-λ) is
  // concave for λ > 0, so an equal spread has the largest sum; and convex for λ < 0, so p ≤ least bounds it.
  const bound = tilt > 0 ? others ** tilt * rest ** (1 - tilt) : rest * Math.exp(-tilt * least);
  return Math.log(tilted + bound);
}
