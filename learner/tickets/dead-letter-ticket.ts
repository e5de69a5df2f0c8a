import { errorText } from '../../shared/base/errors.js';
import { readableId } from '../../shared/base/ticket-name.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { encode } from '../../shared/wire/codec.js';
import { messageIdOf } from '../../shared/wire/ticket-ids.js';
import { Ticket } from '../../shared/wire/ticket.js';
import type { TicketContent } from './ticket-source.js';

/**
 * The fields of a ticket that follow from its order. A restarted learner does not know at which version it was issued.
 */
const UnissuedTicket = Ticket.omit({ issuedAtVersion: true, pinnedVersion: true });

/**
 * Dead-letters a training ticket that has ended without an answer. The ticket table counts it already, so a failure is
 * only logged.
 *
 * @param reason for people.
 */
export async function deadLetterTicket(
  { deadLetters, names }: Pick<Broker, 'deadLetters' | 'names'>,
  ticket: TicketContent,
  reason: string,
  log: Logger,
): Promise<void> {
  const msgId = messageIdOf(ticket);
  const subject = names.subjects.tickets('train');
  const original = { subject, data: encode(UnissuedTicket, ticket), msgId };
  try {
    await deadLetters.store('learner', reason, original, msgId);
  } catch (caught) {
    const ticketId = readableId(ticket.ticketId);
    log.warn({ ticketId, reason: errorText(caught) }, 'dead letter of a ticket not stored');
  }
}
