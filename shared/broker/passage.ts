import { readableId } from '../base/ticket-name.js';
import type { Attempt } from '../wire/ticket-ids.js';
import type { Split } from '../wire/ticket.js';
import { type Link, streamState } from './link.js';
import { pollQueue, type QueueState, readTicket } from './queue-state.js';

/** Readers of the queues that follow the ticket queue; they return undefined while a queue does not exist. */
interface QueuePolls {
  readonly rollouts: () => Promise<QueueState | undefined>;
  /** Returns the ticket that a message of the rollout queue answers; undefined if it is gone or answers none. */
  readonly answered: (seq: number) => Promise<Attempt | undefined>;
  /** Counts the scored groups, including those that a checkpoint has yet to acknowledge. */
  readonly scored: () => Promise<number | undefined>;
}

/** Polls after which a group held by a reward service is no longer waited for. */
const maxHeldPolls = 5;

/**
 * Follows the tickets that had left their queue at some moment until their results have passed every later
 * queue. A consumer acknowledges a message only once its result is in the next queue or a dead letter. So
 * when every group seen in the rollout queue at the first poll has left it, all earlier groups are scored or
 * beyond; the queues need not be empty for that.
 *
 * A group that a reward service holds for long is no longer waited for: `heldLong` lists its ticket, and the
 * fate of all others is known without it.
 */
export class Passage {
  readonly #polls: QueuePolls;
  readonly #unacked: () => number;
  readonly #heldLong: Attempt[] = [];
  #waiting: Map<number, number> | undefined; // polls since delivery, by sequence number

  /** @param unacked returns how many scored groups have been received but not acknowledged. */
  constructor(polls: QueuePolls, unacked: () => number) {
    this.#polls = polls;
    this.#unacked = unacked;
  }

  /** Tickets whose groups a reward service has held for long; they are not lost. */
  get heldLong(): readonly Attempt[] {
    return this.#heldLong;
  }

  /**
   * Polls the queues.
   *
   * @returns true once each ticket that had left its queue at the first call is lost, in `heldLong`,
   *   dead-lettered, or its scored group has been received.
   */
  async isOver(): Promise<boolean> {
    if (this.#waiting === undefined || this.#waiting.size > 0) {
      const state = await this.#polls.rollouts();
      if (state === undefined) return false;
      this.#waiting ??= new Map([...state.live].map((seq) => [seq, 0]));
      await this.#follow(this.#waiting, state);
      if (this.#waiting.size > 0) return false;
    }
    const scored = await this.#polls.scored();
    return scored !== undefined && scored <= this.#unacked();
  }

  async #follow(waiting: Map<number, number>, { live, deliveredTo }: QueueState): Promise<void> {
    for (const [seq, polls] of waiting) {
      if (!live.has(seq)) {
        waiting.delete(seq);
      } else if (polls >= maxHeldPolls) {
        const ticket = await this.#polls.answered(seq);
        if (ticket !== undefined) this.#heldLong.push(ticket);
        waiting.delete(seq);
      } else if (seq <= deliveredTo) {
        waiting.set(seq, polls + 1);
      }
    }
  }
}

/** Creates the readers for one split. */
export function pollsOf(link: Link, split: Split): QueuePolls {
  const { streams, subjects } = link.names;
  return {
    rollouts: () => pollQueue(link, 'rollouts'),
    answered: async (seq) => {
      const ticket = await readTicket(link, streams.rollouts, seq);
      const ticketId = ticket && readableId(ticket.ticketId);
      if (ticket !== undefined)
        link.log.warn({ ticketId, seq }, 'group held long by a reward service');
      return ticket;
    },
    async scored() {
      const subject = subjects.scored(split);
      const state = await streamState(link, streams.scored, subject);
      return state && (state.subjects?.[subject] ?? 0);
    },
  };
}
