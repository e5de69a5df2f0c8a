/**
 * Two terms that are added to the advantage of each token, both of one form: with a cost c_t known of
 * every sampled token, coefficient · (mean(c) - c_t). The mean, over all tokens of a minibatch, is a
 * baseline: it changes no expected gradient, because E[∇ log π] is 0, and takes away variance.
 */

/**
 * A penalty on KL(π ‖ base), with log π_behavior - log π_base as the cost of a token: the k1
 * estimator, whose mean over samples is the divergence.
 *
 * What it lowers is the divergence of each token given its prefix. Of what a token does to the
 * divergence of those behind it nothing is counted, as in tinker-cookbook without discounting.
 *
 * Cost: one `forward` of the base model; the behavior logprobs are here already.
 *
 * Source: tinker-cookbook, `rl/metrics.py`, `incorporate_kl_penalty`.
 *
 * @param behavior [B][T] logprobs of the tokens, a rollout each.
 * @param base [B][T] their logprobs under the base model, at the same temperature.
 * @returns [B][T] to be added to the advantages.
 * @throws {RangeError} if the arrays of a rollout differ in length.
 */
export function klTerms(
  coefficient: number,
  behavior: readonly ArrayLike<number>[],
  base: readonly ArrayLike<number>[],
): Float64Array[] {
  const costs = behavior.map((logprobs, i) => {
    if (base[i]?.length !== logprobs.length) {
      throw new RangeError(
        `rollout ${i} has ${logprobs.length} logprobs, ${base[i]?.length ?? 0} of base`,
      );
    }
    return Float64Array.from(logprobs, (logprob, t) => logprob - base[i]![t]!);
  });
  return centred(coefficient, costs);
}

/**
 * A bonus on the entropy of the policy, with log π as the cost of a token: surprising tokens gain,
 * expected ones lose.
 *
 * Why: H = -Σ_a π(a) log π(a), so ∇H = -Σ_a (log π(a) + 1) ∇π(a) = E_a[-log π(a) · ∇ log π(a)], the
 * 1 falling away with Σ ∇π = 0. One sampled token gives this without bias, and the loss's importance
 * ratio makes up for another policy having sampled it. What is raised is the entropy of the next
 * token at the prefixes that occur; how a token changes which prefixes follow is left out, as in the
 * entropy bonus of A3C (Mnih et al. 2016, arXiv:1602.01783). On stale tokens the behavior logprob
 * stands in for the current one, which is off by as much as the policy has moved.
 *
 * It is `klTerms` with a uniform base. Cost: no pass.
 *
 * @param behavior [B][T] logprobs of the tokens, a rollout each.
 * @returns [B][T] to be added to the advantages.
 */
export function entropyTerms(
  coefficient: number,
  behavior: readonly ArrayLike<number>[],
): Float64Array[] {
  return centred(
    coefficient,
    behavior.map((logprobs) => Float64Array.from(logprobs)),
  );
}

/**
 * The coefficient of the entropy term when entropy has a floor to be held: 0 while the sampled
 * entropy is at the target or above, and the full coefficient as it goes to 0, in proportion between.
 *
 * @param target nats a token; undefined: the full coefficient always.
 * @param sampledEntropy mean of -log π_behavior over the tokens at hand.
 */
export function entropyCoefficient(
  coefficient: number,
  target: number | undefined,
  sampledEntropy: number,
): number {
  if (target === undefined) return coefficient;
  return coefficient * Math.min(Math.max((target - sampledEntropy) / target, 0), 1);
}

/** The mean over all tokens; 0 of none. */
export function tokenMean(rollouts: readonly ArrayLike<number>[]): number {
  let sum = 0;
  let tokens = 0;
  for (const values of rollouts) {
    tokens += values.length;
    for (let t = 0; t < values.length; t++) sum += values[t]!;
  }
  return tokens === 0 ? 0 : sum / tokens;
}

function centred(coefficient: number, costs: readonly Float64Array[]): Float64Array[] {
  const mean = tokenMean(costs);
  return costs.map((cost) => cost.map((value) => coefficient * (mean - value)));
}
