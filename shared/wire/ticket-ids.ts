import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { orderName, orderOf } from '../base/ticket-name.js';
import type { TicketKey } from './ledger.js';
import type { Ticket } from './ticket.js';

/** One attempt of a ticket: each time it is issued is a new attempt. */
export type Attempt = Pick<Ticket, 'ticketId' | 'attempt'>;

/**
 * The ids of a run's training tickets, such as `train-00000007-0123456789abcdef`: the ticket's order and a MAC
 * of order and attempt. A queue drops a second message with the same id, so a client that could guess the id of
 * another client's ticket could suppress its answer.
 *
 * The id is a function of key, order and attempt, so a restarted learner sends a ticket again under the same id.
 * Orders below `keyedFrom` were issued by a release whose ids had no MAC, and keep those ids.
 */
export class TicketIds {
  readonly key: TicketKey;

  constructor(key: TicketKey) {
    this.key = key;
  }

  /** The id of the run's n-th ticket at its first (0) or second (1) attempt. */
  of(order: number, attempt: number): string {
    const name = orderName(order);
    if (order < this.key.keyedFrom) return name;
    const mac = createHmac('sha256', this.key.secret).update(`${order}.${attempt}`).digest('hex');
    return `${name}-${mac.slice(0, macDigits)}`;
  }

  /** The order of an attempt of this run; undefined if the id is forged. */
  orderOf({ ticketId, attempt }: Attempt): number | undefined {
    const order = orderOf(ticketId);
    if (order === undefined) return undefined;
    const [found, expected] = [ticketId, this.of(order, attempt)].map((id) => Buffer.from(id));
    const isOurs = found!.length === expected!.length && timingSafeEqual(found!, expected!);
    return isOurs ? order : undefined;
  }
}

const macDigits = 16; // 64 bits

/** A new key, for a new run or for one whose tickets of orders below `keyedFrom` were issued without a key. */
export function newTicketKey(keyedFrom = 0): TicketKey {
  return { v: 1, secret: randomBytes(32).toString('hex'), keyedFrom };
}

/** A random, unguessable part for an id that no process has to recompute. */
export function randomPart(): string {
  return randomBytes(macDigits / 2).toString('hex');
}

/**
 * The message id under which this attempt's ticket, rollouts and scores are published, so that each
 * queue stores each of them once.
 */
export function messageIdOf({ ticketId, attempt }: Attempt): string {
  return `${ticketId}.${attempt}`;
}

/** The attempt in such a message id; undefined for any other text. */
export function attemptOf(messageId: string): Attempt | undefined {
  const [, id, attempt] = /^(.{1,128})\.(\d{1,9})$/.exec(messageId) ?? [];
  return id === undefined ? undefined : { ticketId: id, attempt: Number(attempt) };
}
