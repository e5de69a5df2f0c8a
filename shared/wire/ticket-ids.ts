import type { Ticket } from './ticket.js';

/** The training ticket at a position of the run's sequence: `train-00000007`. */
export function ticketId(order: number): string {
  return `train-${String(order).padStart(8, '0')}`;
}

/** The position that a training ticket's id names; undefined for any other text. */
export function orderOf(id: string): number | undefined {
  const [, digits] = /^train-(\d{8,15})$/.exec(id) ?? [];
  return digits === undefined ? undefined : Number(digits);
}

/** One of the times that a ticket was issued. */
export type Attempt = Pick<Ticket, 'ticketId' | 'attempt'>;

/**
 * What a message of this attempt is published under, be it the ticket, its rollouts or their scores: each
 * queue stores it once, however often it is sent.
 */
export function messageIdOf({ ticketId, attempt }: Attempt): string {
  return `${ticketId}.${attempt}`;
}

/** The attempt that such an id names; undefined for any other text. */
export function attemptOf(messageId: string): Attempt | undefined {
  const [, id, attempt] = /^(.{1,128})\.(\d{1,9})$/.exec(messageId) ?? [];
  return id === undefined ? undefined : { ticketId: id, attempt: Number(attempt) };
}
