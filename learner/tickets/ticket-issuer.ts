import { Gauge } from 'prom-client';
import type { Ticket } from '../../shared/wire/ticket.js';
import type { Admission } from '../groups/admission.js';
import type { Changes } from '../../shared/base/changes.js';
import type { GroupReceiver } from '../groups/group-receiver.js';
import type { TicketSource } from './ticket-source.js';
import type { Pace } from './ticket-pace.js';

const ticketsOutstanding = new Gauge({
  name: 'rl_tickets_outstanding',
  help: 'Tickets issued and not yet trained or dropped.',
});
const ticketDemand = new Gauge({
  name: 'rl_ticket_demand',
  help: 'Groups that actors could be sampling: unanswered tickets, and those that could be issued besides.',
});

export interface IssuerOptions<Group> {
  readonly admission: Admission<Group>;
  readonly tickets: TicketSource;
  readonly receiver: Pick<GroupReceiver, 'claim' | 'isAnswered'>;
  readonly changes: Changes;
  readonly pace: Pace;
  /** Resolves once the stream holds the ticket; rejects when `signal` aborts first. */
  readonly publish: (ticket: Ticket, signal: AbortSignal) => Promise<void>;
  /** Called with a stale group once its ticket's second attempt is published, so that a crash loses neither. */
  readonly onReplaced: (group: Group) => void;
}

/**
 * Issues tickets one after another, in order, whenever the law and the limiter leave room and the pace wants
 * one. The second attempt of a stale ticket goes first, since it replaces the first attempt. Resolves when `signal` aborts.
 *
 * A ticket enters the table only after the stream has stored it, so no checkpoint can name a ticket
 * that was never sent. A ticket that was sent but not entered is sent again after a crash under the
 * same id, and only one group of it is admitted.
 */
export async function issueTickets<Group>(
  options: IssuerOptions<Group>,
  signal: AbortSignal,
): Promise<void> {
  const { admission, tickets, receiver, changes, pace, publish, onReplaced } = options;
  while (!signal.aborted) {
    ticketsOutstanding.set(admission.table.outstanding);
    ticketDemand.set(admission.samplable);
    // This also delays a reissue, by at most one write of the ledger.
    if (!admission.hasOffer || !tickets.isProblemFinal(admission.table.nextOrder)) {
      pace.reset();
      await changes.next(signal);
      continue;
    }
    // Offered only now, since the window reserves a place for an offer.
    if (!(await pace.isWanted(signal))) continue;
    const offer = admission.offer();
    if (offer === undefined) continue;
    const { order, attempt, issuedAtVersion } = offer;
    // The answer may be here already: to a ticket of a crashed learner, or a late one to a withdrawn first attempt.
    if (!receiver.isAnswered(order, attempt)) {
      const ticket = tickets.ticketAt(order, attempt, issuedAtVersion);
      if (!(await isPublished(publish(ticket, signal), signal))) return;
    }
    const replaced = admission.issue();
    if (replaced !== undefined) onReplaced(replaced);
    receiver.claim(order, attempt);
  }
}

/** @returns false if `signal` aborted first; the stream may or may not have the ticket. */
async function isPublished(publishing: Promise<void>, signal: AbortSignal): Promise<boolean> {
  try {
    await publishing;
    return true;
  } catch (caught) {
    if (signal.aborted) return false;
    throw caught;
  }
}
