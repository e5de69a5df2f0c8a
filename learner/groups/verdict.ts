import { alteredFields } from '../../shared/wire/altered-ticket.js';
import { claimedMass, evidenceAgainstUniform } from '../../shared/rl/claim-evidence.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import type { TicketEntry } from './ticket-table.js';

/** Why a scored group that keeps its schema is still not to be trained on. */
export type Refusal =
  | 'unknown_ticket' // no such ticket was ever issued
  | 'altered_ticket' // it differs from the one that was issued
  | 'no_prompt' // the completion's first token would have nothing that it follows
  | 'token_out_of_range'
  | 'too_many_tokens'
  | 'unknown_version' // of a version that was never published
  | 'too_old_version' // older than the ticket allowed
  | 'impossible_logprobs'; // no policy gives its tokens the probabilities that it claims

/** An honest group is refused for its logprobs once in 10⁹ groups, at most. */
const proof = Math.log(1e9);

/** What rounding can make of a sum of probabilities: half-precision logits differ by an eighth or so. */
const maxClaimedMass = 1.5;

export interface Known {
  /** What the group's ticket must say, issued when it was; undefined if there is no such position. */
  readonly ticket: Ticket | undefined;
  /** The table's entry of that ticket, if it is outstanding. */
  readonly entry: Pick<TicketEntry<unknown>, 'attempt' | 'issuedAtVersion'> | undefined;
  /** A learner before this one may have sent the same ticket, so that this one's copy went unheard. */
  readonly isResumed: boolean;
  readonly newestVersion: number; // published, or just about to be
  readonly vocabSize: number;
}

/**
 * Checks a scored group against what the learner knows and its schema cannot.
 *
 * @returns why it must be refused; undefined if it may be trained on.
 */
export function refusal({ group }: ScoredGroup, known: Known): Refusal | undefined {
  const { ticket } = group;
  if (known.ticket === undefined) return 'unknown_ticket';
  if (!isSameTicket(ticket, known)) return 'altered_ticket';

  if (group.promptTokens.length === 0) return 'no_prompt';
  const inRange = (token: number): boolean => token < known.vocabSize;
  if (!group.promptTokens.every(inRange)) return 'token_out_of_range';
  for (const { tokens, versions } of group.rollouts) {
    if (!tokens.every(inRange)) return 'token_out_of_range';
    if (tokens.length > ticket.samplingParams.maxTokens) return 'too_many_tokens';
    for (const [version] of versions) {
      if (version > known.newestVersion) return 'unknown_version';
      if (version < ticket.issuedAtVersion) return 'too_old_version';
    }
  }
  return isImpossible(group.rollouts, known.vocabSize) ? 'impossible_logprobs' : undefined;
}

/** Whether the claims refute themselves, whatever policy is said to have made them. */
function isImpossible(rollouts: ScoredGroup['group']['rollouts'], vocabSize: number): boolean {
  return (
    evidenceAgainstUniform(rollouts, vocabSize) > proof || claimedMass(rollouts) > maxClaimedMass
  );
}

/** The versions that sampled the group, each once, in rising order. */
export function versionsOf({ group }: ScoredGroup): number[] {
  const versions = group.rollouts.flatMap((rollout) =>
    rollout.versions.map(([version]) => version),
  );
  return [...new Set(versions)].sort((a, b) => a - b);
}

/**
 * A ticket of this learner's own issue must be the same in every field. One that a crashed learner
 * issued may name another version, since that is all that the sequence of tickets leaves open: an
 * earlier one, if this learner sent the ticket again, which the stream drops as a duplicate.
 */
function isSameTicket(ticket: ScoredGroup['group']['ticket'], known: Known): boolean {
  const { issuedAtVersion } = ticket;
  if (alteredFields(ticket, { ...known.ticket!, issuedAtVersion }).length > 0) return false;
  const issued = known.entry;
  const isOurs = issued?.issuedAtVersion !== undefined && issued.attempt === ticket.attempt;
  if (!isOurs) return issuedAtVersion <= known.newestVersion;
  return known.isResumed
    ? issuedAtVersion <= issued.issuedAtVersion
    : issuedAtVersion === issued.issuedAtVersion;
}
