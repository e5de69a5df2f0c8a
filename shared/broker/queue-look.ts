import type { StreamState } from 'nats';
import type { Attempt } from '../wire/ticket-ids.js';
import type { Split } from '../wire/ticket.js';
import { ticketOf } from './dead-letter-watch.js';
import { isNotAllowed, isNotThere } from './failures.js';
import { ask, askFor, type Link } from './link.js';
import { MessageHeaders } from './message-headers.js';
import type { Source } from './names.js';
import type { Receipt } from './publish.js';

/** What a queue holds at some moment. */
export interface QueueLook {
  readonly live: ReadonlySet<number>; // sequence numbers of its messages
  readonly last: number; // that was ever given
  /** Every message of the consumer up to this one was given to somebody, who may have given it back. */
  readonly deliveredTo: number;
}

/** Looks into the stream of a queue; undefined while there is none, or no consumer. */
export async function lookInto(link: Link, source: Source): Promise<QueueLook | undefined> {
  const { stream, durable } = link.names.consumer(source);
  const info = await askFor(link, `look into ${stream}`, () =>
    link.jsm.streams.info(stream, { deleted_details: true }),
  );
  const consumer = await askFor(link, `look at consumer ${durable} of ${stream}`, () =>
    link.jsm.consumers.info(stream, durable),
  );
  if (info === undefined || consumer === undefined) return undefined;
  const { first_seq: first, last_seq: last, messages } = info.state;
  const { deleted = [] } = info.state as Partial<StreamState>; // left out where there is none
  const live = new Set<number>();
  if (messages > 0) for (let seq = first; seq <= last; seq += 1) live.add(seq);
  for (const seq of deleted) live.delete(seq);
  return { live, last, deliveredTo: consumer.delivered.stream_seq };
}

interface QueuedTicket {
  readonly seq: number; // in its stream
  readonly ticket: Attempt;
  readonly isTaken: boolean; // somebody was given it
}

/** The tickets that are in their queue, with the actors' hands on some. */
export interface TicketLook {
  readonly tickets: readonly QueuedTicket[];
  /** False while some message of the queue is not known: any ticket may be there. */
  readonly isWhole: boolean;
}

/**
 * The queue of tickets, ticket by ticket: one that is held, or hidden, says nothing of the others. The
 * learner publishes them and is told their numbers; those of a learner before it are read once.
 */
export class TicketQueue {
  readonly #link: Link;
  readonly #tickets = new Map<number, Attempt | undefined>(); // undefined: a message without a ticket
  #hasWarned = false;

  constructor(link: Link) {
    this.#link = link;
  }

  /** The stream has the ticket under this number. */
  note({ seq, isDuplicate }: Receipt, { ticketId, attempt }: Attempt): void {
    if (!isDuplicate) {
      // A server that came back without the newest messages gives their numbers anew.
      for (const known of this.#tickets.keys()) if (known > seq) this.#tickets.delete(known);
    }
    this.#tickets.set(seq, { ticketId, attempt });
  }

  async look(split: Split): Promise<TicketLook | undefined> {
    const look = await lookInto(this.#link, `tickets.${split}`);
    if (look === undefined) return undefined;
    const { live, last, deliveredTo } = look;
    for (const seq of this.#tickets.keys()) {
      if (seq <= last && !live.has(seq)) this.#tickets.delete(seq);
    }
    const isWhole = await this.#readUnknown(live);
    const tickets = [...this.#tickets].flatMap(([seq, ticket]) =>
      ticket === undefined ? [] : [{ seq, ticket, isTaken: seq <= deliveredTo }],
    );
    return { tickets, isWhole };
  }

  /**
   * Takes a ticket out of the queue, whoever holds it.
   *
   * @returns false if the server does not let us.
   */
  async withdraw(seq: number): Promise<boolean> {
    const { jsm, names } = this.#link;
    try {
      await ask(this.#link, `withdraw ticket ${seq}`, () =>
        jsm.streams.deleteMessage(names.streams.tickets, seq, false),
      );
    } catch (caught) {
      if (isNotAllowed(caught)) return this.#complain();
      if (!isNotThere(caught)) throw caught; // who held it has just settled it
    }
    return true;
  }

  /** @returns whether every message is known now. */
  async #readUnknown(live: ReadonlySet<number>): Promise<boolean> {
    const { names } = this.#link;
    try {
      for (const seq of live) {
        if (this.#tickets.has(seq)) continue;
        const ticket = await ticketAt(this.#link, names.streams.tickets, seq);
        if (!this.#tickets.has(seq)) this.#tickets.set(seq, ticket);
      }
      return true;
    } catch (caught) {
      if (!isNotAllowed(caught)) throw caught;
      return this.#complain();
    }
  }

  /** Once. */
  #complain(): false {
    if (!this.#hasWarned) this.#link.log.warn(remedyOfOldRights);
    this.#hasWarned = true;
    return false;
  }
}

/** What helps where the server's configuration was made by an older release. */
const remedyOfOldRights =
  'the NATS server does not let the learner read and delete tickets: run `offbeat nats-config` again and reload it';

/** The ticket that a message is or answers; undefined where it is gone, or has none. */
export async function ticketAt(
  link: Link,
  stream: string,
  seq: number,
): Promise<Attempt | undefined> {
  const message = await askFor(link, `read ${seq} of ${stream}`, () =>
    link.jsm.streams.getMessage(stream, { seq }),
  );
  if (message === undefined) return undefined;
  const msgId = new MessageHeaders(message).get('Nats-Msg-Id');
  return ticketOf({ data: message.data, msgId });
}
