import { z } from 'zod';
import { type Attempt, attemptOf } from '../wire/ticket-ids.js';
import { unpack } from '../wire/unpack.js';
import type { DeadLetter } from './dead-letters.js';

/** The ticket in a message that was given up, however little else of the message makes sense. */
const TicketInside = z.object({ ticketId: z.string(), attempt: z.int().nonnegative() });
const Anything = z.union([
  TicketInside, // a ticket
  z.object({ ticket: TicketInside }).transform(({ ticket }) => ticket), // a rollout group
  z.object({ group: z.object({ ticket: TicketInside }) }).transform(({ group }) => group.ticket), // a scored group
]);

/**
 * Which ticket a dead letter was the end of: as its message says, else by the id that this was published
 * with, since a message may have died of its body being lost. Undefined if neither tells.
 */
export function ticketOf({ data, msgId }: Pick<DeadLetter, 'data' | 'msgId'>): Attempt | undefined {
  return ticketInside(data) ?? (msgId === undefined ? undefined : attemptOf(msgId));
}

/** Who gave a message up, and why. */
export type Death = Pick<DeadLetter, 'stage' | 'reason' | 'cause'>;

/** Tells of every ticket whose message was given up, those of before this process included. */
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
    return undefined; // not even MessagePack
  }
}
