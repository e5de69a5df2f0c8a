import { encode } from '../wire/codec.js';
import { type Attempt, messageIdOf } from '../wire/ticket-ids.js';
import { type Split, Ticket } from '../wire/ticket.js';
import { isNotAllowed, isNotThere } from './failures.js';
import { ask, type Link } from './link.js';
import { type BodyStores, publish, traceHeaders } from './publish.js';
import { pollQueue, readTicket } from './queue-state.js';

interface QueuedTicket {
  readonly seq: number; // in its stream
  readonly ticket: Attempt;
  readonly isTaken: boolean; // it was delivered
}

/** The tickets in their queue, including those that actors have leased. */
export interface TicketQueueState {
  readonly tickets: readonly QueuedTicket[];
  /** False while some message of the queue is unread: it may be any ticket. */
  readonly isWhole: boolean;
}

/**
 * The ticket queue, ticket by ticket, so that a leased or hidden ticket does not affect the others. The
 * learner knows the sequence numbers of the tickets that it publishes, and reads those of earlier learners
 * once.
 */
export class TicketQueue {
  readonly #link: Link;
  readonly #stores: BodyStores;
  readonly #tickets = new Map<number, Attempt | undefined>(); // undefined: a message without a ticket
  #hasWarned = false;

  constructor(link: Link, stores: BodyStores) {
    this.#link = link;
    this.#stores = stores;
  }

  /**
   * Publishes a ticket and resolves when JetStream has stored it. An attempt that is published again is
   * stored once.
   *
   * @param options.trace `traceparent` of the ticket's span.
   * @throws the signal's reason, once it aborts.
   */
  async publish(
    ticket: Ticket,
    { trace, signal }: { readonly trace?: string | undefined; readonly signal: AbortSignal },
  ): Promise<void> {
    const outgoing = {
      subject: this.#link.names.subjects.tickets(ticket.split),
      data: encode(Ticket, ticket),
      msgId: messageIdOf(ticket),
      headers: traceHeaders(trace),
    };
    const { seq, isDuplicate } = await publish(this.#link, this.#stores, outgoing, signal);
    if (!isDuplicate) {
      // A server that restarted without its newest messages reuses their numbers.
      for (const known of this.#tickets.keys()) if (known > seq) this.#tickets.delete(known);
    }
    this.#tickets.set(seq, { ticketId: ticket.ticketId, attempt: ticket.attempt });
  }

  async poll(split: Split): Promise<TicketQueueState | undefined> {
    const state = await pollQueue(this.#link, `tickets.${split}`);
    if (state === undefined) return undefined;
    const { live, last, deliveredTo } = state;
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
   * The training tickets that wait for an actor, and the requests of actors that wait for one. A request of an actor that
   * has died counts until it expires, 10 s at most.
   *
   * @throws at once if the server does not answer.
   */
  async demand(): Promise<{ readonly undelivered: number; readonly requests: number }> {
    const { names, jsm, outages } = this.#link;
    const { stream, durable } = names.consumer('tickets.train');
    const info = await outages.guard(() => jsm.consumers.info(stream, durable));
    return { undelivered: info.num_pending, requests: info.num_waiting };
  }

  /**
   * Deletes a ticket from the queue, even if an actor holds it.
   *
   * @returns whether it was there: false if its holder has just settled it, or the server's permissions forbid it.
   */
  async withdraw(seq: number): Promise<boolean> {
    const { jsm, names } = this.#link;
    let attempts = 0;
    try {
      await ask(this.#link, `withdraw ticket ${seq}`, () => {
        attempts += 1;
        return jsm.streams.deleteMessage(names.streams.tickets, seq, false);
      });
    } catch (caught) {
      if (isNotAllowed(caught)) return this.#warnOnce();
      if (!isNotThere(caught)) throw caught;
      return attempts > 1; // an earlier attempt has deleted it, and its answer was lost
    }
    return true;
  }

  /** Reads the messages that are not yet known. @returns whether all are known now. */
  async #readUnknown(live: ReadonlySet<number>): Promise<boolean> {
    const { names } = this.#link;
    try {
      for (const seq of live) {
        if (this.#tickets.has(seq)) continue;
        const ticket = await readTicket(this.#link, names.streams.tickets, seq);
        if (!this.#tickets.has(seq)) this.#tickets.set(seq, ticket);
      }
      return true;
    } catch (caught) {
      if (!isNotAllowed(caught)) throw caught;
      return this.#warnOnce();
    }
  }

  /** Warns about missing permissions, once. */
  #warnOnce(): false {
    if (!this.#hasWarned) this.#link.log.warn(remedyOfOldRights);
    this.#hasWarned = true;
    return false;
  }
}

/** Remedy if an older release wrote the server's configuration. */
const remedyOfOldRights =
  'the NATS server does not allow the learner to read and delete tickets: run `offbeat nats-config` again and restart it';
