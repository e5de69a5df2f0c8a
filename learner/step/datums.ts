import type { Datum } from '../../shared/tinker/types.js';
import type { LossName } from '../../shared/rl/losses.js';

/** What a loss is told of the tokens that the policy sampled. */
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
 * @param promptLogprobs [≥ P - 1] the current ones, for `dro`: its quadratic term counts on every
 * position, and is 0 only where the behavior logprob equals the current one.
 * @returns arrays of N = P + T - 1 positions.
 */
export function datumOf(
  loss: LossName,
  promptTokens: Int32Array,
  tokens: Int32Array,
  inputs: TokenInputs,
  promptLogprobs?: Float32Array,
): Datum {
  const start = firstPosition(promptTokens);
  const shifted = shiftedTokens(promptTokens, tokens);
  const advantages = new Float32Array(start + tokens.length);
  advantages.set(inputs.advantages, start);
  if (loss === 'cross_entropy') return { ...shifted, inputs: { weights: advantages } };

  const logprobs = new Float32Array(start + tokens.length);
  if (promptLogprobs !== undefined) logprobs.set(promptLogprobs.subarray(0, start));
  logprobs.set(inputs.logprobs, start);
  return { ...shifted, inputs: { logprobs, advantages } };
}

/** One rollout of which only the logprobs are wanted, by `cross_entropy` with nothing to learn. */
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
