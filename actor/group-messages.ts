import { PermanentError } from '../shared/base/errors.js';
import type { Tokenizer } from '../shared/model/tokenizer.js';
import type { Dataset } from '../shared/tasks/dataset.js';
import { promptTokens, type PromptTokenizer } from '../shared/tasks/prompt.js';
import type { Task } from '../shared/tasks/task.js';
import type { Ticket } from '../shared/wire/ticket.js';
import type { GroupRequest, SampledRollout } from '../shared/model/rollout-draft.js';
import { notFinite } from '../shared/wire/death-cause.js';
import type { Certificate } from '../shared/wire/canary.js';
import type { RolloutGroup } from '../shared/wire/rollout-group.js';

/** Dependencies that turn a ticket into a prompt. The ticket only names the problem. */
export interface PromptSource {
  readonly dataset: Pick<Dataset, 'problem'>;
  readonly task: Pick<Task, 'prompt' | 'stop'>;
  readonly tokenizer: PromptTokenizer & Pick<Tokenizer, 'eosTokenIds'>;
  readonly maxContext: number | undefined; // tokens of prompt and answer together
}

/**
 * The sampling request of a ticket.
 *
 * @throws {PermanentError} if the problem is unknown, or its prompt leaves too little room for an answer.
 */
export function groupRequest(ticket: Ticket, source: PromptSource): GroupRequest {
  const problem = source.dataset.problem(ticket.problemId);
  if (problem === undefined) {
    throw new PermanentError(
      `ticket ${ticket.ticketId} asks for problem ${ticket.problemId}, which the run's dataset does not have`,
    );
  }
  const prompt = promptTokens(source.task.prompt(problem), source.tokenizer);
  const { temperature, maxTokens, seed } = ticket.samplingParams;
  const needed = prompt.length + maxTokens;
  if (source.maxContext !== undefined && needed > source.maxContext) {
    throw new PermanentError(
      `ticket ${ticket.ticketId} needs ${needed} tokens (prompt ${prompt.length}, answer ${maxTokens}), but the model has room for ${source.maxContext}; lower the run's max tokens`,
    );
  }
  return {
    prompt,
    count: ticket.groupSize,
    temperature,
    maxTokens,
    stopTokenIds: source.tokenizer.eosTokenIds,
    stopStrings: source.task.stop,
    seed,
  };
}

/** A finished group, not yet encoded as a message. */
export interface SampledGroup {
  readonly ticket: Ticket;
  readonly actor: string;
  readonly prompt: Int32Array; // [P]
  readonly rollouts: readonly SampledRollout[]; // [G]
  readonly certificate?: Certificate | undefined;
  readonly startedAt: number; // ms since the epoch
  readonly finishedAt: number; // ms since the epoch
}

/**
 * The message that carries a sampled group to the reward service.
 *
 * A float32 log-softmax may be slightly above 0 for a certain token; such values become 0. Any other
 * error (a missing rollout) is left for the schema to refuse.
 *
 * @throws {GivenUp} if a logprob is not finite.
 */
export function rolloutGroup(sampled: SampledGroup): RolloutGroup {
  const { ticket, actor, prompt, rollouts, certificate, startedAt, finishedAt } = sampled;
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
      behaviorLogprobs: notPositive(behaviorLogprobs),
      versions,
      stopReason,
    })),
    ...(certificate === undefined ? {} : { certificate }),
    startedAt,
    finishedAt,
  };
}

/** The policy version that drew the token at `position`. */
function versionAt({ versions }: SampledRollout, position: number): number {
  let end = 0;
  return versions.find(([, count]) => position < (end += count))?.[0] ?? 0;
}

/** A loop, because `from` with a function is many times slower for typed arrays. */
function notPositive(logprobs: Float32Array): Float32Array<ArrayBuffer> {
  const bounded = new Float32Array(logprobs);
  for (let t = 0; t < bounded.length; t++) if (bounded[t]! > 0) bounded[t] = 0;
  return bounded;
}
