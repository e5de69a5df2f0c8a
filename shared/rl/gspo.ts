import { z } from 'zod';
import { type LossAndGradient, LossName } from './losses.js';

/** The losses that the local backend serves: those of tokens, GSPO, and those that a client has uploaded. */
export const ServedLoss = z.enum([...LossName.options, 'gspo', 'custom']);
export type ServedLoss = z.infer<typeof ServedLoss>;

/** The bounds of the sequence ratio where a request leaves them out: 3e-4 below 1 and 4e-4 above, as in the paper. */
export const gspoDefaults = { clip_low_threshold: 0.9997, clip_high_threshold: 1.0004 };

/** What GSPO reads at each position besides the current logprob. */
export const gspoInputs = ['logprobs', 'advantages', 'sequence_ratio_mask'] as const;

/**
 * GSPO in its token form, of one sequence. Every token has the ratio of the sequence, and the gradient of its own
 * logprob: with ℓ the current logprob, q the behavior logprob, A the advantage and M the tokens that the mask marks,
 *
 *   s = exp(mean over M of ℓ - q), a constant        loss = -Σ min(s·A, clip(s)·A)        d loss / d ℓ = -s·A
 *
 * The derivative is 0 where the clipped term is the smaller one. Because s depends on all tokens of the sequence, this
 * loss costs one pass more than the losses of single tokens.
 *
 * Source: the public documentation of the Tinker API; Zheng et al. 2025 (arXiv:2507.18071), equation 13.
 *
 * @param current [T] logprobs under the policy in training.
 * @param inputs each [T]; `sequence_ratio_mask` marks a token with any value but 0.
 * @throws {RangeError} if the mask marks no token.
 */
export function gspo(
  current: ArrayLike<number>,
  inputs: Readonly<Record<(typeof gspoInputs)[number], ArrayLike<number>>>,
  config: Readonly<Record<string, number>>,
): LossAndGradient {
  const { logprobs: behavior, advantages, sequence_ratio_mask: mask } = inputs;
  const { clip_low_threshold: low, clip_high_threshold: high } = { ...gspoDefaults, ...config };
  let sum = 0;
  let marked = 0;
  for (let t = 0; t < current.length; t++) {
    if (mask[t] === 0) continue;
    sum += current[t]! - behavior[t]!;
    marked++;
  }
  if (marked === 0) throw new RangeError('sequence_ratio_mask marks no token');
  const ratio = Math.exp(sum / marked);
  const clipped = Math.min(Math.max(ratio, low), high);

  const gradient = new Float64Array(current.length);
  let loss = 0;
  for (let t = 0; t < current.length; t++) {
    const advantage = advantages[t]!;
    if (advantage === 0) continue;
    const isClipped = clipped * advantage < ratio * advantage;
    loss -= (isClipped ? clipped : ratio) * advantage;
    if (!isClipped) gradient[t] = -ratio * advantage;
  }
  return { loss, gradient };
}
