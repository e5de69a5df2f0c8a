import { ticketInside } from '../../../shared/broker/dead-letter-watch.js';
import type { DeadLetter } from '../../../shared/broker/dead-letters.js';
import type { Checkpoint } from '../../../shared/wire/ledger.js';

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
  { data }: Pick<DeadLetter, 'data'>,
  checkpoint: Pick<Checkpoint, 'consumedBelow' | 'consumedAbove'> | undefined,
): Fate {
  const ticket = ticketInside(data);
  if (ticket?.order === undefined || ticket.split !== 'train') return 'none';
  if (checkpoint === undefined) return 'open';
  const { consumedBelow, consumedAbove } = checkpoint;
  const hasEnded = ticket.order < consumedBelow || consumedAbove.includes(ticket.order);
  return hasEnded ? 'ended' : 'open';
}
