import type { Passage } from '../../shared/broker/passage.js';
import type { TicketQueueState } from '../../shared/broker/ticket-queue.js';
import { readableId } from '../../shared/base/ticket-name.js';
import { type Attempt, messageIdOf } from '../../shared/wire/ticket-ids.js';
import type { HoldTimes } from './hold-times.js';

/** Milliseconds between two polls; finding a lost ticket takes at least two. */
export const ticketPollMs = 2_000;

/** The most withdrawn tickets whose late answers are still timed. */
const maxWithdrawn = 1_000;

/** A ticket that is issued and not finished. */
interface OpenTicket {
  readonly id: string; // the id of its message, which only the learner and the holder know
  readonly seconds: number; // held by an actor so far
  actor?: string; // the actor that answered it
}

/** Tickets that actors hold for longer than usual. */
export interface HeldTickets {
  readonly tickets: number;
  readonly withdrawn: number; // of these, at this poll
  readonly longestSeconds: number;
  readonly limitSeconds: number;
}

export interface TicketWatchOptions {
  /** Attempts that are issued and not answered yet. */
  readonly awaited: () => readonly Attempt[];
  /** Whether a ticket of the queue has ended. Asked only for tickets that are not awaited. */
  readonly isFinished: (ticket: Attempt) => boolean;
  /** Reads the queue of tickets; undefined if the server does not answer. */
  readonly poll: () => Promise<TicketQueueState | undefined>;
  /** Starts to follow the tickets that have left their queue through the later queues. */
  readonly pass: () => Pick<Passage, 'isOver' | 'heldLong'>;
  /** Takes a ticket out of its queue; resolves to false if that is not possible. */
  readonly withdraw: (seq: number) => Promise<boolean>;
  /** Whether any actor is live; while none is, hold times do not grow. */
  readonly isAnyoneThere: () => boolean;
  readonly holdTimes: HoldTimes;
  readonly now: () => number; // seconds, of a monotonic clock
  /** Called for a ticket that will never be answered. */
  readonly onLost: (ticket: Attempt) => void;
  /** Called for a ticket that was held too long and has been withdrawn from its queue. */
  readonly onOverdue: (ticket: Attempt, heldSeconds: number) => void;
  /** Called at each poll at which tickets are held for longer than usual. */
  readonly onHeld: (held: HeldTickets) => void;
  /** Called after each poll. @param longestSeconds the longest hold time; 0 if no ticket is held. */
  readonly onPoll?: (longestSeconds: number) => void;
}

/**
 * Finds the tickets that a run would otherwise wait for indefinitely.
 *
 * - **Lost** tickets are in no queue. NATS keeps acknowledged messages when a process ends. But a power failure may
 *   lose messages that were not on disk yet, an actor may acknowledge a ticket and send nothing, and an operator may
 *   purge a stream. A ticket counts as lost if three things hold: it has left its queue; everything that was in the
 *   later queues at that time has passed through them; and no answer is known, at that poll and at the next one, since
 *   reading a dead letter takes a moment.
 * - **Overdue** tickets are held too long, by an actor whose decoder hangs or one that keeps extending its ack
 *   wait. Time counts from the first delivery, so a ticket that waits for an actor has no limit.
 * - **Left over** tickets are answered, but an actor keeps them in the queue: instead of acknowledging one, it has
 *   asked for its redelivery in some years. They are withdrawn after the same time as overdue ones.
 *
 * Each ticket is checked by itself, so a held ticket does not hide the loss of another.
 */
export class TicketWatch {
  readonly #options: TicketWatchOptions;
  readonly #open = new Map<string, OpenTicket>(); // by readable ticket id
  readonly #withdrawn = new Map<string, number>(); // seconds at which each was leased, by message id; oldest first
  #hasTaken = false; // whether the queue had tickets that actors took, at the last poll
  #leftOver = new Map<number, number>(); // seconds for which each ticket has been left over, by its sequence number
  #polledAt: number | undefined;
  #suspected: readonly Attempt[] = [];
  #missing: readonly Attempt[] = [];
  #passage: Pick<Passage, 'isOver' | 'heldLong'> | undefined;

  constructor(options: TicketWatchOptions) {
    this.#options = options;
  }

  /** Records that a ticket is in the queue and about to be awaited. */
  published(ticket: Attempt): void {
    this.#open.set(readableId(ticket.ticketId), { id: messageIdOf(ticket), seconds: 0 });
  }

  /** Records the actor that answered a ticket. Must be called while the ticket is still awaited. */
  answered(ticket: Attempt, actor: string): void {
    const id = messageIdOf(ticket);
    const open = this.#open.get(readableId(ticket.ticketId));
    if (open?.id === id) open.actor ??= actor;
    const takenAt = this.#withdrawn.get(id);
    if (takenAt === undefined) return;
    this.#withdrawn.delete(id);
    this.#options.holdTimes.recordLate(this.#options.now() - takenAt, actor);
  }

  /** Polls the queue once; calls must not overlap. */
  async poll(): Promise<void> {
    const { poll, awaited, onLost } = this.#options;
    const before = awaited(); // tickets published during the read may be missing from it
    const elapsed = this.#elapsedSeconds();
    this.#recordFinished();
    if (before.length === 0 && this.#passage === undefined && !this.#hasTaken) {
      this.#missing = [];
      this.#options.onPoll?.(0);
      return;
    }
    const queue = await poll();
    if (queue === undefined) return;
    this.#hasTaken = queue.tickets.some(({ isTaken }) => isTaken);
    const missing = queue.isWhole ? among(this.#missing, awaited()) : [];
    this.#missing = [];
    for (const ticket of without(missing, inQueue(queue))) {
      this.#open.delete(readableId(ticket.ticketId));
      onLost(ticket);
    }
    await this.#findOverdue(before, queue, elapsed);
    await this.#withdrawLeftOver(before, queue, elapsed);
    await this.#findLost(before, queue);
  }

  async #findOverdue(
    awaited: readonly Attempt[],
    { tickets }: TicketQueueState,
    elapsed: number, // seconds since the last poll
  ): Promise<void> {
    const { holdTimes, withdraw, onOverdue, onHeld, onPoll } = this.#options;
    const attempts = new Map(
      awaited.map(({ ticketId, attempt }) => [readableId(ticketId), attempt]),
    );
    const held = tickets.flatMap(({ seq, ticket, isTaken }) => {
      const name = readableId(ticket.ticketId);
      if (!isTaken || !(ticket.attempt >= (attempts.get(name) ?? Infinity))) return [];
      const open = this.#open.get(name);
      const seconds = (open?.seconds ?? 0) + elapsed;
      this.#open.set(name, { ...open, id: messageIdOf(ticket), seconds });
      return [{ seq, ticket, seconds }];
    });
    const longestSeconds = Math.max(0, ...held.map(({ seconds }) => seconds));
    const { limit, unusual } = holdTimes;
    const late = held.filter(({ seconds }) => seconds > unusual);
    let withdrawn = 0;
    for (const { seq, ticket, seconds } of late) {
      if (seconds <= limit || !(await withdraw(seq))) continue;
      withdrawn += 1;
      this.#open.delete(readableId(ticket.ticketId));
      this.#withdrawn.set(messageIdOf(ticket), this.#options.now() - seconds);
      if (this.#withdrawn.size > maxWithdrawn)
        this.#withdrawn.delete(this.#withdrawn.keys().next().value!);
      onOverdue(ticket, seconds);
    }
    if (withdrawn > 0) holdTimes.exceeded();
    if (late.length > 0) {
      onHeld({ tickets: late.length, withdrawn, longestSeconds, limitSeconds: limit });
    }
    onPoll?.(longestSeconds);
  }

  async #withdrawLeftOver(
    awaited: readonly Attempt[],
    { tickets }: TicketQueueState,
    elapsed: number,
  ): Promise<void> {
    const { isFinished, holdTimes, withdraw } = this.#options;
    const ids = new Set(awaited.map(messageIdOf));
    const before = this.#leftOver;
    this.#leftOver = new Map();
    for (const { seq, ticket, isTaken } of tickets) {
      if (!isTaken || ids.has(messageIdOf(ticket)) || !isFinished(ticket)) continue;
      const known = before.get(seq);
      const seconds = known === undefined ? 0 : known + elapsed; // it may just have been published
      if (seconds <= holdTimes.limit || !(await withdraw(seq))) this.#leftOver.set(seq, seconds);
    }
  }

  async #findLost(before: readonly Attempt[], queue: TicketQueueState): Promise<void> {
    const { awaited, pass } = this.#options;
    if (this.#passage === undefined) {
      this.#suspected = queue.isWhole ? without(among(before, awaited()), inQueue(queue)) : [];
      if (this.#suspected.length === 0) return;
      this.#passage = pass();
    }
    if (!(await this.#passage.isOver())) return;
    const { heldLong } = this.#passage;
    this.#passage = undefined;
    this.#missing = without(among(this.#suspected, awaited()), heldLong);
  }

  /** Seconds since the last poll; 0 while no actor is live, and capped in case the learner itself stalled. */
  #elapsedSeconds(): number {
    const now = this.#options.now();
    const since = now - (this.#polledAt ?? now);
    this.#polledAt = now;
    return this.#options.isAnyoneThere() ? Math.min(since, (2 * ticketPollMs) / 1_000) : 0;
  }

  #recordFinished(): void {
    const awaited = new Set(this.#options.awaited().map(({ ticketId }) => readableId(ticketId)));
    for (const [name, { seconds, actor }] of this.#open) {
      if (awaited.has(name)) continue;
      this.#open.delete(name);
      // A ticket that died says nothing about how long an answer takes.
      if (actor !== undefined) this.#options.holdTimes.record(seconds, actor);
    }
  }
}

function inQueue({ tickets }: TicketQueueState): Attempt[] {
  return tickets.map(({ ticket }) => ticket);
}

function among(some: readonly Attempt[], all: readonly Attempt[]): Attempt[] {
  const ids = new Set(all.map(messageIdOf));
  return some.filter((ticket) => ids.has(messageIdOf(ticket)));
}

/**
 * Returns the tickets that are not in `there`, neither as this attempt nor as a later one: after a crash the
 * table may name the first attempt while the second is outstanding, issued by a step that was lost.
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
