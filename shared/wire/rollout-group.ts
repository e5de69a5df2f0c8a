import { z } from 'zod';
import { Certificate } from './canary.js';
import { Float32Block, Int32Block } from './codec.js';
import { maxGroupSize, Ticket } from './ticket.js';

type VersionRun = [version: number, tokens: number];

/**
 * Runs of tokens sampled by one policy version, in order: [version, number of tokens]. Versions must rise from run to
 * run, since a rollout only adopts newer ones. This also stops an actor from splitting a version into a run for each
 * token, which would keep the learner's statistics busy for minutes. Only the first error is reported, because a
 * message may contain a million of them.
 */
const VersionRuns = z
  .custom<VersionRun[]>(
    (runs) => Array.isArray(runs) && runs.length > 0,
    'expected at least one run',
  )
  .check(({ value, issues }) => {
    const complain = (path: number[], message: string) =>
      issues.push({ code: 'custom', input: value, path, message });
    let before = -1;
    for (const [i, run] of (value as unknown[]).entries()) {
      if (!Array.isArray(run) || run.length !== 2) {
        return void complain([i], 'expected [version, number of tokens]');
      }
      const [version, tokens] = run as unknown[];
      if (!isInteger(version, 0)) return void complain([i, 0], 'expected a version, from 0 on');
      if (!isInteger(tokens, 1))
        return void complain([i, 1], 'expected a number of tokens, from 1 on');
      if (version <= before)
        return void complain([i, 0], `expected a version above ${before}, that of the run before`);
      before = version;
    }
  });

function isInteger(value: unknown, least: number): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= least;
}

/** One sampled answer, with the data for off-policy training. */
export const Rollout = z
  .strictObject({
    tokens: Int32Block, // [T], the stop token included when `stopReason` is stop
    behaviorLogprobs: Float32Block, // [T], of the distribution that each token was drawn from
    versions: VersionRuns, // the policy version of each token, run-length coded
    stopReason: z.enum(['stop', 'length']),
  })
  .check(({ value, issues }) => {
    const length = value.tokens.length;
    const complain = (path: string, message: string) =>
      issues.push({ code: 'custom', input: value, path: [path], message });
    if (length === 0) complain('tokens', 'a rollout has at least one token');
    if (hasNegative(value.tokens)) complain('tokens', 'a token id is at least 0');
    if (value.behaviorLogprobs.length !== length) {
      complain('behaviorLogprobs', `expected one logprob for each of ${length} tokens`);
    }
    if (!areLogprobs(value.behaviorLogprobs)) {
      complain('behaviorLogprobs', 'a logprob is finite and at most 0');
    }
    if (value.versions.reduce((sum, [, count]) => sum + count, 0) !== length) {
      complain('versions', `expected the runs to cover ${length} tokens`);
    }
  });
export type Rollout = z.output<typeof Rollout>;

// Loops, since every process checks every token, and a call for each takes several times as long.
function hasNegative(tokens: Int32Array): boolean {
  for (let t = 0; t < tokens.length; t++) if (tokens[t]! < 0) return true;
  return false;
}

function areLogprobs(values: Float32Array): boolean {
  for (let t = 0; t < values.length; t++) {
    if (!(values[t]! <= 0 && values[t]! > -Infinity)) return false;
  }
  return true;
}

/** The rollouts of one ticket, on their way from an actor to the reward service. */
export const RolloutGroup = z
  .strictObject({
    v: z.literal(1),
    ticket: Ticket,
    actor: z.string().min(1).max(128),
    promptTokens: Int32Block, // [P], shared by the whole group
    rollouts: z.array(Rollout).min(1).max(maxGroupSize), // [G]
    certificate: Certificate.optional(), // absent: of an older actor, or versions without canaries
    startedAt: z.number(), // ms since the epoch, when the first token was sampled
    finishedAt: z.number(), // ms since the epoch
  })
  .refine((group) => !hasNegative(group.promptTokens), {
    path: ['promptTokens'],
    message: 'a token id is at least 0',
  })
  .refine((group) => group.rollouts.length === group.ticket.groupSize, {
    path: ['rollouts'],
    message: 'expected as many rollouts as the ticket asked for',
  });
export type RolloutGroup = z.output<typeof RolloutGroup>;

/** The number of tokens of the group's rollouts, without the prompt. */
export function tokenCount({ rollouts }: Pick<RolloutGroup, 'rollouts'>): number {
  return rollouts.reduce((sum, { tokens }) => sum + tokens.length, 0);
}

/** The distinct versions that sampled the rollouts, in rising order. */
export function versionsIn(rollouts: readonly Pick<Rollout, 'versions'>[]): number[] {
  const versions = rollouts.flatMap((rollout) => rollout.versions.map(([version]) => version));
  return [...new Set(versions)].sort((a, b) => a - b);
}

/** The part of a run's configuration that bounds the size of its groups. */
export const GroupSizes = z.object({
  groupSize: z.int().min(2),
  sampling: z.object({ maxTokens: z.int().positive() }),
});
export type GroupSizes = z.infer<typeof GroupSizes>;

/**
 * An upper bound on the bytes of a group message of a run, with rollouts and scores, so that readers
 * can limit their buffers. Typical groups take about a third of it, because few neighboring tokens
 * differ in version.
 *
 * @param sizes sizes of training groups; evaluation groups are no larger.
 */
export function largestGroupBytes({ groupSize, sampling: { maxTokens } }: GroupSizes): number {
  return bytesOnce + groupSize * (maxTokens * bytesPerToken + bytesPerRollout);
}

/** A prompt of a million tokens, since no setting bounds it, and the other fields of the group. */
const bytesOnce = 4 * 2 ** 20;
/** An id and a logprob of 4 bytes each, and a separate version run: two integers in an array. */
const bytesPerToken = 8 + 1 + 9 + 9;
/** Field names and lengths, and two fractions of 1,024 digits. */
const bytesPerRollout = 4_096;
