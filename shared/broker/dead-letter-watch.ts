import { z } from 'zod';
import { type Attempt, attemptOf } from '../wire/ticket-ids.js';
import { unpack } from '../wire/unpack.js';
import type { DeadLetter } from './dead-letters.js';

/** The ticket in a dead-lettered message, even if the rest of the message is invalid. */
const TicketInside = z.object({ ticketId: z.string(), attempt: z.int().nonnegative() });
const Anything = z.union([
  TicketInside, // a ticket
  z.object({ ticket: TicketInside }).transform(({ ticket }) => ticket), // a rollout group
  z.object({ group: z.object({ ticket: TicketInside }) }).transform(({ group }) => group.ticket), // a scored group
]);

/**
 * Returns the ticket that a dead letter ended: from the message, else from the message id, since the message
 * may have been dead-lettered because its body was lost. Undefined if neither names a ticket.
 */
export function ticketOf({ data, msgId }: Pick<DeadLetter, 'data' | 'msgId'>): Attempt | undefined {
  return ticketInside(data) ?? (msgId === undefined ? undefined : attemptOf(msgId));
}

/** The stage that dead-lettered a message, and why. */
export type Death = Pick<DeadLetter, 'stage' | 'reason' | 'cause'>;

/** Calls `onDeath` for every ticket whose message was dead-lettered, including earlier ones. */
export async function watchDeadLetters(
  letters: AsyncIterable<Pick<DeadLetter, 'data' | 'msgId'> & Death>,
  onDeath: (ticket: Attempt, death: Death) => void,
): Promise<void> {
  for await (const letter of letters) {
    const { stage, reason, cause } = letter;
    const ticket = ticketOf(letter);
    if (ticket !== undefined) onDeath(ticket, { stage, reason, cause });
  }
}

function ticketInside(data: Uint8Array): Attempt | undefined {
  try {
    return Anything.safeParse(unpack(data)).data;
  } catch {
    return undefined; // not MessagePack
  }
}
