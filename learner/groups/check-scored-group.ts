import { alteredFields, type Ticket } from '../../shared/wire/ticket.js';
import { claimedMass, evidenceAgainstUniform } from '../../shared/rl/claim-evidence.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import type { TicketEntry } from '../tickets/ticket-table.js';

/** A scored group that waits to be trained on. */
export interface ArrivedGroup {
  readonly scored: ScoredGroup;
  readonly seq: number; // stream sequence number of its message
  readonly sampledBy: readonly number[]; // policy versions of its tokens
  readonly arrivedAtVersion: number;
  readonly arrivedAt?: number; // ms since the epoch, for its trace
  readonly trace?: string | undefined; // `traceparent` of the scoring span
}

/** What a group's certificate says of the versions that sampled it. */
export type Verdict =
  | 'certified' // the canary of each was reproduced
  | 'uncertified' // the certificate lacks at least one version, or this learner does not know its canary
  | 'wrong'; // another canary than the published one was reproduced

/** Why a scored group with a valid schema must still not be trained on. */
export type RefusalReason =
  | 'unknown_ticket' // no such ticket was ever issued
  | 'altered_ticket' // the ticket differs from the issued one
  | 'no_prompt' // the completion's first token would have no context
  | 'token_out_of_range'
  | 'too_many_tokens'
  | 'unknown_version' // sampled by a version that was never published
  | 'too_old_version' // sampled by a version older than the ticket allows
  | 'wrong_canary' // its actor has reproduced another canary than that of a version it names
  | 'impossible_logprobs'; // no policy gives the tokens the claimed probabilities

/** Bounds the chance that an honest group is refused for its logprobs to 1 in 10⁹. */
const maxEvidence = Math.log(1e9);

/** Upper bound on a sum of probabilities after rounding: half-precision logits differ by about 1/8. */
const maxClaimedMass = 1.5;

/** The learner's own knowledge, which a group must agree with. */
export interface Known {
  /**
   * The ticket that the group must carry, with the group's own `issuedAtVersion`, which `entry` checks;
   * undefined if no such ticket was issued.
   */
  readonly ticket: Ticket | undefined;
  /** The ticket's entry in the table, if it is outstanding. */
  readonly entry: Pick<TicketEntry<unknown>, 'attempt' | 'issuedAtVersion'> | undefined;
  /** An earlier learner may have sent the same ticket, so that the stream dropped this learner's copy. */
  readonly isResumed: boolean;
  readonly certificate: Verdict;
  readonly newestVersion: number; // published, or just about to be
  readonly vocabSize: number;
}

/**
 * Checks a scored group against what the learner knows and a schema cannot check.
 *
 * @returns the reason to refuse the group; undefined if it may be trained on.
 */
export function refusalReason({ group }: ScoredGroup, known: Known): RefusalReason | undefined {
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
  if (known.certificate === 'wrong') return 'wrong_canary';
  return isImpossible(group.rollouts, known.vocabSize) ? 'impossible_logprobs' : undefined;
}

/** Whether no policy at all can have produced the claimed logprobs. */
function isImpossible(rollouts: ScoredGroup['group']['rollouts'], vocabSize: number): boolean {
  return (
    evidenceAgainstUniform(rollouts, vocabSize) > maxEvidence ||
    claimedMass(rollouts) > maxClaimedMass
  );
}

/**
 * Whether the group carries the ticket that was issued. A ticket of this learner must agree in every
 * field. A crashed learner may have issued the same ticket at another version, the only field that the
 * ticket sequence does not determine. If this learner then sent the ticket again, the stream dropped it
 * as a duplicate, so an earlier version is accepted.
 */
function isSameTicket(ticket: ScoredGroup['group']['ticket'], known: Known): boolean {
  const { issuedAtVersion } = ticket;
  if (alteredFields(ticket, known.ticket!).length > 0) return false;
  const issued = known.entry;
  const isOurs = issued?.issuedAtVersion !== undefined && issued.attempt === ticket.attempt;
  if (!isOurs) return issuedAtVersion <= known.newestVersion;
  return known.isResumed
    ? issuedAtVersion <= issued.issuedAtVersion
    : issuedAtVersion === issued.issuedAtVersion;
}
