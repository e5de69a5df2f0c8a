import { ticketOf } from '../../../shared/broker/dead-letter-watch.js';
import type { DeadLetter } from '../../../shared/broker/dead-letters.js';
import type { Checkpoint } from '../../../shared/wire/ledger.js';
import { orderOf } from '../../../shared/wire/ticket-ids.js';

/**
 * What the run's saved books say of the ticket that a dead letter was the end of.
 *
 * - `open`: the next learner waits for it, and knows by this letter alone that it will not come.
 * - `ended`: it was trained, skipped, replaced or counted as dead; nobody waits for it.
 * - `none`: no training ticket is in it.
 */
export type Fate = 'open' | 'ended' | 'none';

/** @param checkpoint of the ledger; a run without one has no ticket that ended. */
export function fateOf(
  letter: Pick<DeadLetter, 'data' | 'msgId'>,
  checkpoint: Pick<Checkpoint, 'consumedBelow' | 'consumedAbove'> | undefined,
): Fate {
  const ticket = ticketOf(letter);
  const order = ticket && orderOf(ticket.ticketId);
  if (order === undefined) return 'none';
  if (checkpoint === undefined) return 'open';
  const { consumedBelow, consumedAbove } = checkpoint;
  const hasEnded = order < consumedBelow || consumedAbove.includes(order);
  return hasEnded ? 'ended' : 'open';
}
