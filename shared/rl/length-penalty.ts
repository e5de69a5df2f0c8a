import type { ExtraTerms } from './objective.js';

/**
 * What an answer loses for its length, before it is compared with its group: nothing up to
 * `freeTokens`, then in proportion, `weight` at `maxTokens`. It shapes what is learnt from a group;
 * rewards as they are reported, and whether a group has variance, stay as they were scored.
 *
 * Source: the soft overlong punishment of DAPO (Yu et al. 2025, arXiv:2503.14476).
 *
 * @param penalty its weight in units of the reward, and fewer free tokens than `maxTokens`.
 * @param tokens of the answer.
 * @returns at most 0.
 */
export function lengthPenalty(
  { weight, freeTokens }: ExtraTerms['lengthPenalty'],
  tokens: number,
  maxTokens: number,
): number {
  const excess = Math.min(Math.max(0, tokens - freeTokens), maxTokens - freeTokens);
  return excess === 0 ? 0 : (-weight * excess) / (maxTokens - freeTokens);
}
