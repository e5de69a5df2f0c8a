import { z } from 'zod';
import { Score, type ScoredGroup } from '../../../shared/wire/scored-group.js';
import { textPieces } from './text-pieces.js';

/** A piece of an answer, most often a token. */
const SampledPiece = z.object({
  text: z.string(), // empty for special tokens, such as the end of the answer
  from: z.int(), // of the answer's tokens, the first
  to: z.int(), // and the one behind the last
  logprob: z.number(), // nats; of a piece of several tokens their sum
  version: z.int(), // that drew its last token
});
export type SampledPiece = z.infer<typeof SampledPiece>;

const SampledRollout = z.object({
  pieces: z.array(SampledPiece), // of the answer, in order
  omitted: z.int(), // tokens behind these
  stopReason: z.enum(['stop', 'length']),
  score: Score,
});
export type SampledRollout = z.infer<typeof SampledRollout>;

/** A group of rollouts for people to read. */
export const SampledGroup = z.object({
  ticketId: z.string(),
  problemId: z.string(),
  actor: z.string(),
  scoredAt: z.number(), // ms since the epoch
  prompt: z.string(),
  rollouts: z.array(SampledRollout),
});
export type SampledGroup = z.infer<typeof SampledGroup>;

export type Decode = (tokens: ArrayLike<number>) => string;

/** So much of an answer is shown: a page has to stay a page. */
const shownTokens = 512;
const shownRollouts = 16;

export function sampledGroup(
  { group, scores, scoredAt }: ScoredGroup,
  decode: Decode,
): SampledGroup {
  const { ticket, actor, promptTokens, rollouts } = group;
  return {
    ticketId: ticket.ticketId,
    problemId: ticket.problemId,
    actor,
    scoredAt,
    prompt: decode(promptTokens),
    rollouts: rollouts.slice(0, shownRollouts).map((rollout, i) => {
      const { tokens, behaviorLogprobs, versions, stopReason } = rollout;
      const versionOf = versions.flatMap(([version, count]) => Array<number>(count).fill(version));
      const pieces = textPieces(tokens.subarray(0, shownTokens), decode).map((piece) => ({
        ...piece,
        logprob: behaviorLogprobs
          .subarray(piece.from, piece.to)
          .reduce((sum, logprob) => sum + logprob, 0),
        version: versionOf[piece.to - 1]!,
      }));
      const omitted = Math.max(0, tokens.length - shownTokens);
      return { pieces, omitted, stopReason, score: scores[i]! };
    }),
  };
}
