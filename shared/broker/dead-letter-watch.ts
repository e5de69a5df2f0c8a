import { z } from 'zod';
import { unpack } from '../wire/unpack.js';
import { Split } from '../wire/ticket.js';
import type { DeadLetter } from './dead-letters.js';

/** The ticket in a message that was given up, however little else of the message makes sense. */
const TicketInside = z.object({
  ticketId: z.string(),
  attempt: z.int().nonnegative(),
  order: z.int().nonnegative().optional().catch(undefined),
  split: Split.optional().catch(undefined),
});
export type TicketInside = z.infer<typeof TicketInside>;
const Anything = z.union([
  TicketInside, // a ticket
  z.object({ ticket: TicketInside }).transform(({ ticket }) => ticket), // a rollout group
  z.object({ group: z.object({ ticket: TicketInside }) }).transform(({ group }) => group.ticket), // a scored group
]);

/** Which ticket a dead letter was the end of; undefined if its bytes do not tell. */
export function ticketInside(data: Uint8Array): TicketInside | undefined {
  try {
    return Anything.safeParse(unpack(data)).data;
  } catch {
    return undefined; // not even MessagePack
  }
}

/** Who gave a message up, and why. */
export type Death = Pick<DeadLetter, 'stage' | 'reason'>;

/** Tells of every ticket whose message was given up, those of before this process included. */
export async function watchDeadLetters(
  letters: AsyncIterable<Pick<DeadLetter, 'data'> & Death>,
  onDeath: (ticket: { ticketId: string; attempt: number }, death: Death) => void,
): Promise<void> {
  for await (const { data, stage, reason } of letters) {
    const ticket = ticketInside(data);
    if (ticket !== undefined) onDeath(ticket, { stage, reason });
  }
}
