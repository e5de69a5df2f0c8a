import type { Datum } from '../../shared/rl/datum.js';
import { losses, type LossName } from '../../shared/rl/losses.js';

/** The inputs of a loss for the tokens that the policy sampled. */
export interface TokenInputs {
  readonly logprobs: ArrayLike<number>; // [T] that the importance ratio is taken against
  readonly advantages: ArrayLike<number>; // [T] normalization included
}

/**
 * One rollout as the backend trains on it. Position i scores token i + 1 of prompt and completion
 * together, so the completion's first token is scored by the prompt's last position. Losses are sums
 * over all positions, and the prompt's have advantage 0.
 *
 * @param promptTokens [P], at least one.
 * @param tokens [T] of the completion.
 * @param promptLogprobs [≥ P - 1] of the current policy, for a loss that counts every position: the
 * quadratic term of `dro` is 0 only where the behavior logprob equals the current one.
 * @returns arrays of N = P + T - 1 positions.
 */
export function datumOf(
  loss: LossName,
  promptTokens: Int32Array,
  tokens: Int32Array,
  sampled: TokenInputs,
  promptLogprobs?: Float32Array,
): Datum {
  const start = firstPosition(promptTokens);
  const shifted = shiftedTokens(promptTokens, tokens);
  const advantages = new Float32Array(start + tokens.length);
  advantages.set(sampled.advantages, start);
  const logprobs = new Float32Array(start + tokens.length);
  if (promptLogprobs !== undefined) logprobs.set(promptLogprobs.subarray(0, start));
  logprobs.set(sampled.logprobs, start);
  const known = { weights: advantages, logprobs, advantages };
  const inputs = losses[loss].inputs.map((name) => [name, known[name]] as const);
  return { ...shifted, inputs: Object.fromEntries(inputs) };
}

/** One rollout for a pass that only returns logprobs: `cross_entropy` with weight 0 everywhere. */
export function unweightedDatum(promptTokens: Int32Array, tokens: Int32Array): Datum {
  const shifted = shiftedTokens(promptTokens, tokens);
  return { ...shifted, inputs: { weights: new Float32Array(shifted.tokens.length) } };
}

/** The position that scores the completion's first token. */
export function firstPosition(promptTokens: Int32Array): number {
  return promptTokens.length - 1;
}

function shiftedTokens(
  promptTokens: Int32Array,
  tokens: Int32Array,
): Pick<Datum, 'tokens' | 'targetTokens'> {
  const text = new Int32Array(promptTokens.length + tokens.length);
  text.set(promptTokens);
  text.set(tokens, promptTokens.length);
  return { tokens: text.slice(0, -1), targetTokens: text.slice(1) };
}
