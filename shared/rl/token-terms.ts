/**
 * Two terms that are added to the advantage of each token. Both have the form coefficient · (mean(c) - c_t)
 * for a cost c_t of each sampled token. The mean, over all tokens of a minibatch, is a baseline: it leaves
 * the expected gradient unchanged, because E[∇ log π] is 0, and reduces the variance.
 */

/**
 * A penalty on KL(π ‖ base), with log π_behavior - log π_base as the cost of a token: the k1
 * estimator, whose mean over samples is the divergence.
 *
 * It lowers the divergence of each token given its prefix. The effect of a token on the divergence of
 * later tokens is not counted, as in tinker-cookbook without discounting.
 *
 * Cost: one `forward` of the base model; the behavior logprobs are already known.
 *
 * Source: tinker-cookbook, `rl/metrics.py`, `incorporate_kl_penalty`.
 *
 * @param behavior [B][T] logprobs of the tokens, one array per rollout.
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
 * Why: H = -Σ_a π(a) log π(a), so ∇H = -Σ_a (log π(a) + 1) ∇π(a) = E_a[-log π(a) · ∇ log π(a)], where
 * the 1 drops out because Σ ∇π = 0. One sampled token estimates this without bias, and the loss's
 * importance ratio corrects for the policy that sampled it. The bonus raises the entropy of the next
 * token at the prefixes that occur; the effect of a token on later prefixes is left out, as in the
 * entropy bonus of A3C (Mnih et al. 2016, arXiv:1602.01783). On stale tokens the behavior logprob
 * replaces the current one; the error is as large as the movement of the policy.
 *
 * It is `klTerms` with a uniform base. Cost: no pass.
 *
 * @param behavior [B][T] logprobs of the tokens, one array per rollout.
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
 * The coefficient of the entropy term with a target entropy: 0 while the sampled entropy is at or above
 * the target, rising linearly to the full coefficient at entropy 0.
 *
 * @param target nats per token; undefined: always the full coefficient.
 * @param sampledEntropy mean of -log π_behavior over the tokens.
 */
export function entropyCoefficient(
  coefficient: number,
  target: number | undefined,
  sampledEntropy: number,
): number {
  if (target === undefined) return coefficient;
  return coefficient * Math.min(Math.max((target - sampledEntropy) / target, 0), 1);
}

/** The mean over all tokens; 0 without tokens. */
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
