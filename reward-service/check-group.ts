import { PermanentError } from '../shared/base/errors.js';
import type { Dataset, TaskProblem } from '../shared/tasks/dataset.js';
import type { Rollout, RolloutGroup } from '../shared/wire/rollout-group.js';
import type { RunConfig } from '../shared/run/run-config.js';
import type { Ticket } from '../shared/wire/ticket.js';

/** Reasons that the learner checks too have the same names there (`learner/groups/check-scored-group.ts`). */
export type RefusalReason =
  | 'wrong_actor'
  | 'unknown_problem'
  | 'wrong_split'
  | 'wrong_group_size'
  | 'wrong_prompt'
  | 'too_many_tokens'
  | 'token_out_of_range'
  | 'too_old_version'
  | 'wrong_version';

/** A group that cannot be scored; it is dead-lettered with this reason. */
export class GroupRefused extends PermanentError {
  override readonly name = 'GroupRefused';
  constructor(
    readonly reason: RefusalReason,
    detail: string,
  ) {
    super(`${reason}: ${detail}`);
  }
}

/**
 * The problem that a ticket names, from this service's own data, so that an actor cannot influence how
 * its rollouts are scored.
 *
 * @throws {GroupRefused} if there is none, or the ticket puts it in the wrong split.
 */
export function problemOfTicket(dataset: SplitDataset, ticket: Ticket): TaskProblem {
  const { problemId, split, ticketId } = ticket;
  const problem = dataset[split].get(problemId);
  if (problem !== undefined) return problem;
  const isElsewhere = dataset[split === 'train' ? 'eval' : 'train'].has(problemId);
  throw isElsewhere
    ? new GroupRefused('wrong_split', `${problemId} of ticket ${ticketId} is not in split ${split}`)
    : new GroupRefused('unknown_problem', `${problemId} of ticket ${ticketId} is in no split`);
}

/** The problems of each split by id. */
type SplitDataset = Readonly<Record<Ticket['split'], ReadonlyMap<string, TaskProblem>>>;

export function bySplit({ train, test }: Pick<Dataset, 'train' | 'test'>): SplitDataset {
  const index = (problems: readonly TaskProblem[]) =>
    new Map(problems.map((problem) => [problem.id, problem]));
  return { train: index(train), eval: index(test) };
}

/**
 * Checks that a ticket is within the bounds of this run, because a group carries its own copy of the ticket. Only the
 * learner knows how many answers an evaluation ticket asks for, but they are never more than those of a training
 * ticket.
 *
 * @throws {GroupRefused} naming the value in the ticket and the bound of the run.
 */
export function requireTicketOfRun(ticket: Ticket, run: TicketBounds): void {
  const { ticketId, split, groupSize, samplingParams } = ticket;
  if (split === 'train' ? groupSize !== run.groupSize : groupSize > run.groupSize) {
    throw new GroupRefused(
      'wrong_group_size',
      `ticket ${ticketId} asks for ${groupSize} rollouts; the groups of this run have ${run.groupSize}`,
    );
  }
  if (samplingParams.maxTokens > run.sampling.maxTokens) {
    throw new GroupRefused(
      'too_many_tokens',
      `ticket ${ticketId} allows ${samplingParams.maxTokens} tokens; this run samples at most ${run.sampling.maxTokens}`,
    );
  }
}

/** The part of a run's configuration that bounds its tickets. */
type TicketBounds = Pick<RunConfig, 'groupSize' | 'sampling'>;

/**
 * Checks that the group was sent by the actor that it names: NATS lets an actor publish only on the
 * subject with its name.
 *
 * @throws {GroupRefused} if it came on another subject.
 */
export function requireOwnSubject(group: RolloutGroup, subject: string, expected: string): void {
  if (subject === expected) return;
  const { actor, ticket } = group;
  throw new GroupRefused(
    'wrong_actor',
    `the group of ticket ${ticket.ticketId} names ${actor} but came on ${subject}, not ${expected}`,
  );
}

/** What a rollout's tokens may be. */
interface TokenBounds {
  readonly vocabSize: number;
  readonly eosTokenIds: readonly number[]; // those that end a sequence: what follows would be trained on and not scored
  /** Whether a rollout goes on after a text that ends it: it would be a second answer. */
  readonly goesOnAfterStop: (tokens: Int32Array) => boolean;
}

/**
 * Checks that the group answers its ticket, as far as the message shows it.
 *
 * @param promptTokens [P] of the ticket's problem under the run's prompt template.
 * @throws {GroupRefused} naming the rollout, what was found and what was expected.
 */
export function requireAnswerToTicket(
  group: RolloutGroup,
  promptTokens: Int32Array,
  bounds: TokenBounds,
): void {
  const { ticket } = group;
  if (!sameTokens(group.promptTokens, promptTokens)) {
    throw new GroupRefused(
      'wrong_prompt',
      `the ${group.promptTokens.length} prompt tokens of ticket ${ticket.ticketId} are not the ` +
        `${promptTokens.length} of ${ticket.problemId}; does ${group.actor} use another tokenizer or release of offbeat?`,
    );
  }
  for (const [i, rollout] of group.rollouts.entries()) {
    const complaint = complaintAbout(rollout, ticket, bounds);
    if (complaint !== undefined) {
      const [reason, detail] = complaint;
      throw new GroupRefused(reason, `rollout ${i} of ticket ${ticket.ticketId} ${detail}`);
    }
  }
}

function complaintAbout(
  { tokens, versions }: Rollout,
  { samplingParams: { maxTokens }, issuedAtVersion, pinnedVersion }: Ticket,
  { vocabSize, eosTokenIds, goesOnAfterStop }: TokenBounds,
): [RefusalReason, string] | undefined {
  if (tokens.length > maxTokens) {
    return ['too_many_tokens', `has ${tokens.length} tokens; the ticket allows ${maxTokens}`];
  }
  const foreign = tokens.find((token) => token >= vocabSize);
  if (foreign !== undefined) {
    return ['token_out_of_range', `has token ${foreign}; the vocabulary has ${vocabSize}`];
  }
  const end = tokens.findIndex((token) => eosTokenIds.includes(token));
  if (end !== -1 && end < tokens.length - 1) {
    return ['too_many_tokens', `goes on after token ${end}, which ends the sequence`];
  }
  if (goesOnAfterStop(tokens)) {
    return ['too_many_tokens', 'goes on after a text that ends an answer'];
  }
  const used = versions.map(([version]) => version);
  const old = used.find((version) => version < issuedAtVersion);
  if (old !== undefined) {
    return [
      'too_old_version',
      `was sampled by version ${old}; the ticket asks for ${issuedAtVersion} or newer`,
    ];
  }
  const other = used.find((version) => pinnedVersion !== undefined && version !== pinnedVersion);
  if (other !== undefined) {
    return [
      'wrong_version',
      `was sampled by version ${other}; the ticket asks for exactly ${pinnedVersion!}`,
    ];
  }
  return undefined;
}

function sameTokens(a: Int32Array, b: Int32Array): boolean {
  return a.length === b.length && a.every((token, i) => token === b[i]);
}
