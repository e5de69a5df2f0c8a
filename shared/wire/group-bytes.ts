import { z } from 'zod';

/** The part of a run's configuration that bounds the size of its groups; the rest is not read. */
export const GroupSizes = z.object({
  groupSize: z.int().min(2),
  sampling: z.object({ maxTokens: z.int().positive() }),
});
export type GroupSizes = z.infer<typeof GroupSizes>;

/**
 * More bytes than any group of a run has as a message, rollouts and scores together: whoever reads one
 * need not make room for more, whoever sent it. Groups as they are take about a third of it, since
 * hardly two tokens of a row are of different versions.
 *
 * @param sizes of its largest groups; those of evaluations are no larger.
 */
export function largestGroupBytes({ groupSize, sampling: { maxTokens } }: GroupSizes): number {
  return bytesOnce + groupSize * (maxTokens * bytesPerToken + bytesPerRollout);
}

/** A prompt of a million tokens, since no setting bounds it, and what little else there is once. */
const bytesOnce = 4 * 2 ** 20;
/** An id and a logprob of 4 bytes each, and a run of versions for it alone: two integers in an array. */
const bytesPerToken = 8 + 1 + 9 + 9;
/** Names and lengths of its fields, and two fractions of 1,024 digits. */
const bytesPerRollout = 4_096;
