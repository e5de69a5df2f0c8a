import { ticketOf } from '../../shared/broker/dead-letter-watch.js';
import type { DeadLetter } from '../../shared/broker/dead-letters.js';
import type { Checkpoint } from '../../shared/wire/ledger.js';
import { orderOf } from '../../shared/base/ticket-name.js';
import { type TicketIds } from '../../shared/wire/ticket-ids.js';

/**
 * What the run's saved books say of the ticket that a dead letter was the end of.
 *
 * - `open`: the next learner waits for it, and knows by this letter alone that it will not come.
 * - `ended`: it was trained, skipped, replaced or counted as dead; nobody waits for it.
 * - `none`: no training ticket is in it, or one that no learner can have issued: who wrote it made it up.
 */
export type Fate = 'open' | 'ended' | 'none';

/** What the ledger and the stream of tickets know. */
export interface Books extends Pick<Checkpoint, 'consumedBelow' | 'consumedAbove'> {
  /** Every ticket that a learner can have issued is below this order, with an attempt of 0 or 1. */
  readonly issuedBelow: number;
  /** Undefined in a run whose tickets have no key: then what a letter names is believed. */
  readonly ids?: Pick<TicketIds, 'orderOf'> | undefined;
}

export function fateOf(
  letter: Pick<DeadLetter, 'data' | 'msgId'>,
  { consumedBelow, consumedAbove, issuedBelow, ids }: Books,
): Fate {
  const ticket = ticketOf(letter);
  const order = ticket && (ids === undefined ? orderOf(ticket.ticketId) : ids.orderOf(ticket));
  if (order === undefined || order >= issuedBelow || ticket!.attempt > 1) return 'none';
  const hasEnded = order < consumedBelow || consumedAbove.includes(order);
  return hasEnded ? 'ended' : 'open';
}
