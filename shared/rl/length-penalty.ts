export interface LengthPenalty {
  /** What the longest answer loses; 0: no penalty. In units of the reward. */
  readonly weight: number;
  /** Answers up to this many tokens lose nothing; less than `maxTokens`. */
  readonly freeTokens: number;
}

/**
 * What an answer loses for its length, before it is compared with its group: nothing up to
 * `freeTokens`, then in proportion, `weight` at `maxTokens`. It shapes what is learnt from a group;
 * rewards as they are reported, and whether a group has variance, stay as they were scored.
 *
 * Source: the soft overlong punishment of DAPO (Yu et al. 2025, arXiv:2503.14476).
 *
 * @param tokens of the answer.
 * @returns at most 0.
 */
export function lengthPenalty(
  { weight, freeTokens }: LengthPenalty,
  tokens: number,
  maxTokens: number,
): number {
  const excess = Math.min(Math.max(0, tokens - freeTokens), maxTokens - freeTokens);
  return excess === 0 ? 0 : (-weight * excess) / (maxTokens - freeTokens);
}
