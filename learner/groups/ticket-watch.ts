import type { Passage } from '../../shared/broker/passage.js';
import type { TicketLook } from '../../shared/broker/queue-look.js';
import { readableId } from '../../shared/base/ticket-name.js';
import { type Attempt, messageIdOf } from '../../shared/wire/ticket-ids.js';
import type { HoldTimes } from './hold-times.js';

/** How often somebody should look, in milliseconds; two looks, at least, find what is lost. */
export const ticketLookMs = 2_000;

/** Tickets in the hands of actors for longer than usual. */
export interface HeldTickets {
  readonly tickets: number;
  readonly withdrawn: number; // of them, at this look
  readonly longestSeconds: number;
  readonly limitSeconds: number;
}

export interface TicketWatchOptions {
  /** What is out and not heard of. */
  readonly awaited: () => readonly Attempt[];
  readonly look: () => Promise<TicketLook | undefined>;
  /** Begins to follow what has left the queue of tickets. */
  readonly pass: () => Pick<Passage, 'isOver' | 'inHands'>;
  /** Takes a ticket out of the queue. Resolves to false if that is not possible. */
  readonly withdraw: (seq: number) => Promise<boolean>;
  /** Whether anybody is there to sample: while nobody is, no time passes for those that hold tickets. */
  readonly isAnyoneThere: () => boolean;
  readonly holdTimes: HoldTimes;
  readonly now: () => number; // seconds, of a clock that only goes forward
  /** Nothing will ever be heard of it. */
  readonly onLost: (ticket: Attempt) => void;
  /** It was in somebody's hands for too long, and is in the queue no more. */
  readonly onOverdue: (ticket: Attempt, heldSeconds: number) => void;
  /** What is held for longer than usual, at each look at which anything is. */
  readonly onHeld: (held: HeldTickets) => void;
  /** After each look. @param longestSeconds that a ticket has been held; 0 if none is. */
  readonly onLook?: (longestSeconds: number) => void;
}

/**
 * Finds the tickets that a run would wait for in vain.
 *
 * - **Lost** ones are in no queue. When a process ends, NATS has all that it acknowledged; a power failure may
 *   take what was not on the disk yet, an actor may acknowledge a ticket and send nothing, and somebody may
 *   purge a stream by hand. A ticket is lost if it has left its queue, everything that was in the next ones has
 *   passed through them, nothing was heard of it, and neither is at the next look: a dead letter takes a moment
 *   to be read.
 * - **Overdue** ones are in somebody's hands: of an actor whose decoder hangs, or one that asked the server for
 *   an hour more. Time counts from the first delivery, so tickets that merely wait for an actor have no limit.
 *
 * Each ticket is judged by itself, so none that is held hides the loss of another.
 */
export class TicketWatch {
  readonly #options: TicketWatchOptions;
  readonly #out = new Map<string, number>(); // seconds in somebody's hands, by the ticket's name
  #lookedAt: number | undefined;
  #suspected: readonly Attempt[] = [];
  #missing: readonly Attempt[] = [];
  #passage: Pick<Passage, 'isOver' | 'inHands'> | undefined;

  constructor(options: TicketWatchOptions) {
    this.#options = options;
  }

  /** It is in the queue, and about to be awaited. */
  published({ ticketId }: Attempt): void {
    this.#out.set(readableId(ticketId), 0);
  }

  /** One look at a time. */
  async look(): Promise<void> {
    const { look, awaited, onLost } = this.#options;
    const before = awaited(); // what is published during the look need not be in it
    const passed = this.#passedSeconds();
    this.#recordThoseThatEnded();
    if (before.length === 0 && this.#passage === undefined) {
      this.#missing = [];
      this.#options.onLook?.(0);
      return;
    }
    const queue = await look();
    if (queue === undefined) return;
    const missing = queue.isWhole ? among(this.#missing, awaited()) : [];
    this.#missing = [];
    for (const ticket of without(missing, inQueue(queue))) {
      this.#out.delete(readableId(ticket.ticketId));
      onLost(ticket);
    }
    await this.#lookForOverdue(before, queue, passed);
    await this.#lookForLost(before, queue);
  }

  async #lookForOverdue(
    awaited: readonly Attempt[],
    { tickets }: TicketLook,
    passed: number, // seconds since the last look
  ): Promise<void> {
    const { holdTimes, withdraw, onOverdue, onHeld, onLook } = this.#options;
    const attempts = new Map(
      awaited.map(({ ticketId, attempt }) => [readableId(ticketId), attempt]),
    );
    const held = tickets.flatMap(({ seq, ticket, isTaken }) => {
      const name = readableId(ticket.ticketId);
      if (!isTaken || !(ticket.attempt >= (attempts.get(name) ?? Infinity))) return [];
      const seconds = (this.#out.get(name) ?? 0) + passed;
      this.#out.set(name, seconds);
      return [{ seq, ticket, seconds }];
    });
    const longestSeconds = Math.max(0, ...held.map(({ seconds }) => seconds));
    const { limit, unusual } = holdTimes;
    const late = held.filter(({ seconds }) => seconds > unusual);
    let withdrawn = 0;
    for (const { seq, ticket, seconds } of late) {
      if (seconds <= limit || !(await withdraw(seq))) continue;
      withdrawn += 1;
      this.#out.delete(readableId(ticket.ticketId));
      onOverdue(ticket, seconds);
    }
    if (withdrawn > 0) holdTimes.exceeded();
    if (late.length > 0) {
      onHeld({ tickets: late.length, withdrawn, longestSeconds, limitSeconds: limit });
    }
    onLook?.(longestSeconds);
  }

  async #lookForLost(before: readonly Attempt[], queue: TicketLook): Promise<void> {
    const { awaited, pass } = this.#options;
    if (this.#passage === undefined) {
      this.#suspected = queue.isWhole ? without(among(before, awaited()), inQueue(queue)) : [];
      if (this.#suspected.length === 0) return;
      this.#passage = pass();
    }
    if (!(await this.#passage.isOver())) return;
    const { inHands } = this.#passage;
    this.#passage = undefined;
    this.#missing = without(among(this.#suspected, awaited()), inHands);
  }

  /** Since the last look; what stood still itself, or had nobody to sample, counts little or nothing. */
  #passedSeconds(): number {
    const now = this.#options.now();
    const since = now - (this.#lookedAt ?? now);
    this.#lookedAt = now;
    return this.#options.isAnyoneThere() ? Math.min(since, (2 * ticketLookMs) / 1_000) : 0;
  }

  #recordThoseThatEnded(): void {
    const awaited = new Set(this.#options.awaited().map(({ ticketId }) => readableId(ticketId)));
    for (const [name, seconds] of this.#out) {
      if (awaited.has(name)) continue;
      this.#out.delete(name);
      this.#options.holdTimes.record(seconds);
    }
  }
}

function inQueue({ tickets }: TicketLook): Attempt[] {
  return tickets.map(({ ticket }) => ticket);
}

function among(some: readonly Attempt[], all: readonly Attempt[]): Attempt[] {
  const ids = new Set(all.map(messageIdOf));
  return some.filter((ticket) => ids.has(messageIdOf(ticket)));
}

/**
 * Those that are not in `there`, neither themselves nor by a later attempt: after a crash the table may name the
 * first where the second is out, which the steps that were lost had issued.
 */
function without(some: readonly Attempt[], there: readonly Attempt[]): Attempt[] {
  const newest = new Map<string, number>();
  for (const { ticketId, attempt } of there) {
    const name = readableId(ticketId);
    newest.set(name, Math.max(attempt, newest.get(name) ?? 0));
  }
  return some.filter(
    ({ ticketId, attempt }) => !((newest.get(readableId(ticketId)) ?? -1) >= attempt),
  );
}
