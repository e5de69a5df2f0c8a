import type { SampledRollout } from '../shared/model/decoder.js';
import { notFinite } from '../shared/wire/death-cause.js';
import type { RolloutGroup } from '../shared/wire/rollout-group.js';
import type { Ticket } from '../shared/wire/ticket.js';

/** What is known of a group when its last token was sampled. */
export interface SampledGroup {
  readonly ticket: Ticket;
  readonly actor: string;
  readonly prompt: Int32Array; // [P]
  readonly rollouts: readonly SampledRollout[]; // [G]
  readonly startedAt: number; // ms since the epoch
  readonly finishedAt: number; // ms since the epoch
}

/**
 * The message that carries a sampled group to the reward service.
 *
 * A log-softmax in 32 bits may end a hair above 0 for a certain token; what is above is 0. Anything
 * else that is wrong (a missing rollout) is left for the schema to refuse.
 *
 * @throws {GivenUp} if a logprob is not finite.
 */
export function rolloutGroup(sampled: SampledGroup): RolloutGroup {
  const { ticket, actor, prompt, rollouts, startedAt, finishedAt } = sampled;
  for (const rollout of rollouts) {
    const broken = rollout.behaviorLogprobs.findIndex((logprob) => !Number.isFinite(logprob));
    if (broken !== -1) throw notFinite(versionAt(rollout, broken));
  }
  return {
    v: 1,
    ticket,
    actor,
    promptTokens: new Int32Array(prompt),
    rollouts: rollouts.map(({ tokens, behaviorLogprobs, versions, stopReason }) => ({
      tokens: new Int32Array(tokens),
      behaviorLogprobs: Float32Array.from(behaviorLogprobs, (logprob) => Math.min(logprob, 0)),
      versions,
      stopReason,
    })),
    startedAt,
    finishedAt,
  };
}

/** The policy version that drew the token at `position`. */
function versionAt({ versions }: SampledRollout, position: number): number {
  let end = 0;
  return versions.find(([, count]) => position < (end += count))?.[0] ?? 0;
}

/** The tokens that the group's rollouts have together, prompt not counted. */
export function tokenCount(group: RolloutGroup): number {
  return group.rollouts.reduce((sum, { tokens }) => sum + tokens.length, 0);
}
