import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { orderName, orderOf } from '../base/ticket-name.js';
import type { TicketKey } from './ledger.js';
import type { Ticket } from './ticket.js';

/** One of the times that a ticket was issued. */
export type Attempt = Pick<Ticket, 'ticketId' | 'attempt'>;

/**
 * The ids of a run's training tickets: `train-00000007-0123456789abcdef`, the ticket's order and a part that only
 * who knows the key can compute, another one for each attempt. A queue drops what it was sent before under the
 * same id, so who could guess the id of a ticket that he was not given could have its answer dropped.
 *
 * The id is a function of key, order and attempt, so a learner that starts again sends a ticket again under the
 * id that it had. Orders below `keyedFrom` were issued by a release whose ids had no such part, and keep them.
 */
export class TicketIds {
  readonly key: TicketKey;

  constructor(key: TicketKey) {
    this.key = key;
  }

  /** Of the n-th ticket of the run, at its first attempt (0) or its second (1). */
  of(order: number, attempt: number): string {
    const name = orderName(order);
    if (order < this.key.keyedFrom) return name;
    const mac = createHmac('sha256', this.key.secret).update(`${order}.${attempt}`).digest('hex');
    return `${name}-${mac.slice(0, macDigits)}`;
  }

  /** The order of an attempt that this run issued or will issue; undefined where the id is made up. */
  orderOf({ ticketId, attempt }: Attempt): number | undefined {
    const order = orderOf(ticketId);
    if (order === undefined) return undefined;
    const [found, expected] = [ticketId, this.of(order, attempt)].map((id) => Buffer.from(id));
    const isOurs = found!.length === expected!.length && timingSafeEqual(found!, expected!);
    return isOurs ? order : undefined;
  }
}

const macDigits = 16; // 64 bits

/** The key of a run that begins now, or whose tickets of orders below `keyedFrom` are out without one. */
export function newTicketKey(keyedFrom = 0): TicketKey {
  return { v: 1, secret: randomBytes(32).toString('hex'), keyedFrom };
}

/** A part for an id that nobody can guess, where no process has to find the same id again. */
export function randomPart(): string {
  return randomBytes(macDigits / 2).toString('hex');
}

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
