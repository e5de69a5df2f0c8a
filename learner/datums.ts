import type { Datum } from '../shared/tinker/types.js';
import type { LossName } from '../shared/wire/run-config.js';
import type { Rollout } from '../shared/wire/rollout-group.js';

/**
 * One rollout as the backend trains on it. Position i scores token i + 1 of prompt and completion
 * together, so the completion's first token is scored by the prompt's last position. Losses are sums
 * over all positions, and the prompt's have advantage 0.
 *
 * @param promptTokens [P], at least one.
 * @param advantage of every token that the policy sampled, normalization included.
 * @param promptLogprobs [P - 1] the current ones, for `dro`: its quadratic term counts on every
 * position, and is 0 only where the behavior logprob equals the current one.
 * @returns arrays of N = P + T - 1 positions.
 */
export function datumOf(
  loss: LossName,
  promptTokens: Int32Array,
  { tokens, behaviorLogprobs }: Pick<Rollout, 'tokens' | 'behaviorLogprobs'>,
  advantage: number,
  promptLogprobs?: ArrayLike<number>,
): Datum {
  const start = firstPosition(promptTokens);
  const length = start + tokens.length;
  const text = new Int32Array(length + 1);
  text.set(promptTokens);
  text.set(tokens, promptTokens.length);

  const advantages = new Float32Array(length).fill(advantage, start);
  const logprobs = new Float32Array(length);
  if (promptLogprobs !== undefined) logprobs.set(Array.from(promptLogprobs).slice(0, start));
  logprobs.set(behaviorLogprobs, start);
  return {
    tokens: text.slice(0, length),
    targetTokens: text.slice(1),
    inputs: loss === 'cross_entropy' ? { weights: advantages } : { logprobs, advantages },
  };
}

/** The position that scores the completion's first token. */
export function firstPosition(promptTokens: Int32Array): number {
  return promptTokens.length - 1;
}
