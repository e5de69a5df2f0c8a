import type { TokenPairs } from './off-policy.js';

/** A rollout as its actor reports it; each array has one entry per token. */
interface ClaimedRollout {
  readonly tokens: ArrayLike<number>; // [T]
  readonly behaviorLogprobs: ArrayLike<number>; // [T] as claimed by the actor
  readonly versions: readonly (readonly [version: number, count: number])[]; // cover T tokens
}

/**
 * The evidence of tokens against the probabilities q with which an actor claims to have drawn them, as
 * the logarithm of an e-value. Under honest claims the chance that it exceeds ln(1/α) is at most α,
 * whatever the policy, the problem and the length of the answers.
 *
 * Why: let p be any distribution that was fixed before the token was drawn, and r = p/q. If the token
 * comes from q, then E[r] = Σ_v q_v · p_v/q_v ≤ 1, and so is E[1 - w + w·r] for each share w in [0, 1].
 * Hence the product over tokens is a supermartingale that starts at 1, even if the draws determine the
 * length of the answer, and so is the mean of such products over several w. By Markov's inequality it
 * exceeds 1/α with a chance of at most α. w = 1 finds claims that are too low everywhere (the product is
 * the likelihood ratio); w = 1/n finds a single token out of n.
 *
 * The sampler's precision does not matter, as long as it draws from what it claims; nor does it
 * matter how far p has moved from q, which is why this holds at every staleness.
 *
 * Source: Grünwald, de Heide, Koolen 2024 (Safe testing); Waudby-Smith and Ramdas 2024 (betting).
 *
 * @param logRatios ln(p/q) of each token, one array per rollout.
 * @returns nats; 0 for no tokens.
 */
export function claimEvidence(logRatios: readonly ArrayLike<number>[]): number {
  const tokens = logRatios.reduce((sum, { length }) => sum + length, 0);
  if (tokens === 0) return 0;
  const shares: number[] = [];
  for (let w = 1; ; w /= 4) {
    shares.push(w);
    if (w * tokens <= 1) break;
  }
  const bets = shares.map((w) => new Bets(w));
  for (const ratios of logRatios) {
    for (let t = 0; t < ratios.length; t++) {
      const logRatio = ratios[t]!;
      const gain = Math.expm1(logRatio); // once for all shares
      for (const bet of bets) bet.take(logRatio, gain);
    }
  }
  const products = bets.map(({ logProduct }) => logProduct);
  const largest = Math.max(...products);
  const sum = products.reduce((total, product) => total + Math.exp(product - largest), 0);
  return largest + Math.log(sum / products.length);
}

/** The product of the factors 1 - w + w·r of many tokens. One logarithm serves hundreds of factors, which is ten times as fast. */
class Bets {
  readonly #share: number; // w
  #sum = 0; // the logarithm of the factors so far, without those in `product`
  #product = 1;

  constructor(share: number) {
    this.#share = share;
  }

  /** @param gain r - 1, which may be infinite. */
  take(logRatio: number, gain: number): void {
    if (this.#share === 1) {
      this.#sum += logRatio;
    } else if (logRatio > 30) {
      this.#sum += Math.log(this.#share) + logRatio; // the omitted term is below e^-30 / w
    } else {
      this.#product *= 1 + this.#share * gain; // between 3/4 and e^30
      if (this.#product > 1e200 || this.#product < 1e-200) this.#settle();
    }
  }

  get logProduct(): number {
    this.#settle();
    return this.#sum;
  }

  #settle(): void {
    this.#sum += Math.log(this.#product);
    this.#product = 1;
  }
}

/**
 * The evidence that needs no computed logprobs: p is the uniform distribution over the vocabulary. Over
 * n tokens of a vocabulary of V, claims with a mean below -ln V - ln(1/α)/n are refuted, and so is a
 * single one below about α/(n·V): a token of probability ε is drawn with probability ε, and there are
 * at most n·V chances of that.
 */
export function evidenceAgainstUniform(
  rollouts: readonly Pick<ClaimedRollout, 'behaviorLogprobs'>[],
  vocabSize: number,
): number {
  const uniform = -Math.log(vocabSize);
  return claimEvidence(
    rollouts.map(({ behaviorLogprobs }) => differences(behaviorLogprobs, () => uniform)),
  );
}

/** The evidence once a step has computed the logprobs of the policy in training: p is that policy. */
export function evidenceAgainstPolicy(rollouts: readonly TokenPairs[]): number {
  return claimEvidence(
    rollouts.map(({ behavior, current }) => differences(behavior, (t) => current[t]!)),
  );
}

/** ln(p/q) of each token. A loop, because `from` with a function is many times slower for typed arrays. */
function differences(claimed: ArrayLike<number>, logprob: (t: number) => number): Float64Array {
  const ratios = new Float64Array(claimed.length);
  for (let t = 0; t < claimed.length; t++) ratios[t] = logprob(t) - claimed[t]!;
  return ratios;
}

/**
 * The largest sum of probabilities that a group claims for different tokens at one position. Rollouts
 * with the same prefix (tokens and versions) draw their next token from one distribution, so an honest
 * group has at most 1, up to rounding on the server. This detects claims that are too high, which no
 * likelihood can refute: two rollouts that begin with different tokens, each claimed as certain, have 2.
 */
export function claimedMass(rollouts: readonly ClaimedRollout[]): number {
  let largest = 0;
  let alike: (readonly ClaimedRollout[])[] = [rollouts];
  for (let t = 0; alike.length > 0; t++) {
    const next: (readonly ClaimedRollout[])[] = [];
    for (const set of alike) {
      const byVersion = partition(
        set.filter(({ tokens }) => t < tokens.length),
        (rollout) => versionAt(rollout, t),
      );
      for (const sameVersion of byVersion) {
        const byToken = partition(sameVersion, ({ tokens }) => tokens[t]!);
        let mass = 0;
        for (const sameToken of byToken) {
          const claims = sameToken.map(({ behaviorLogprobs }) => behaviorLogprobs[t]!);
          mass += Math.exp(Math.max(...claims));
          if (sameToken.length > 1) next.push(sameToken);
        }
        largest = Math.max(largest, mass);
      }
    }
    alike = next;
  }
  return largest;
}

/** The version that drew token `t`; most rollouts have only a few. */
function versionAt({ versions }: ClaimedRollout, t: number): number {
  let end = 0;
  return versions.find(([, count]) => t < (end += count))![0];
}

function partition<T>(items: readonly T[], keyOf: (item: T) => number): T[][] {
  const parts = new Map<number, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const part = parts.get(key);
    if (part === undefined) parts.set(key, [item]);
    else part.push(item);
  }
  return [...parts.values()];
}
