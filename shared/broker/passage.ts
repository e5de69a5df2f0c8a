import { readableId } from '../base/ticket-name.js';
import type { Attempt } from '../wire/ticket-ids.js';
import type { Split } from '../wire/ticket.js';
import { type Link, streamState } from './link.js';
import { lookInto, type QueueLook, ticketAt } from './queue-look.js';

/** How the queues behind that of tickets are now; undefined while there is none. */
export interface QueueLooks {
  readonly rollouts: () => Promise<QueueLook | undefined>;
  /** Which ticket a message of the queue of rollouts answers; undefined where it is gone, or answers none. */
  readonly answered: (seq: number) => Promise<Attempt | undefined>;
  /** How many scored groups there are, those included that their checkpoint will acknowledge. */
  readonly scored: () => Promise<number | undefined>;
}

/** So many looks after a group was given to a reward service it is not waited for any more. */
const patientLooks = 5;

/**
 * Follows what came of the tickets that had left their queue at some moment, until it can be in no queue any
 * more. Whoever takes a message acknowledges it only when the next queue, or that of dead letters, has
 * what became of it. So once every group that was among the rollouts at a look is gone from there,
 * everything from before is among the scored groups or beyond; and queues need not run empty for that.
 *
 * A group that a reward service holds for long is looked into and waited for no more: `inHands` has its
 * ticket, and what came of all others is known without it.
 */
export class Passage {
  readonly #looks: QueueLooks;
  readonly #held: () => number;
  readonly #inHands: Attempt[] = [];
  #waiting: Map<number, number> | undefined; // looks since it was given to somebody, by sequence number

  /** @param held how many scored groups have been received and not acknowledged. */
  constructor(looks: QueueLooks, held: () => number) {
    this.#looks = looks;
    this.#held = held;
  }

  /** Tickets whose groups a reward service holds for long, so that they are not lost. */
  get inHands(): readonly Attempt[] {
    return this.#inHands;
  }

  /**
   * Looks how far it is by now.
   *
   * @returns whether it is over: of every ticket that had left its queue when this was first called, is not
   *   lost and not in hands, the scored group has been received, or there is a dead letter.
   */
  async isOver(): Promise<boolean> {
    if (this.#waiting === undefined || this.#waiting.size > 0) {
      const look = await this.#looks.rollouts();
      if (look === undefined) return false;
      this.#waiting ??= new Map([...look.live].map((seq) => [seq, 0]));
      await this.#follow(this.#waiting, look);
      if (this.#waiting.size > 0) return false;
    }
    const scored = await this.#looks.scored();
    return scored !== undefined && scored <= this.#held();
  }

  async #follow(waiting: Map<number, number>, { live, deliveredTo }: QueueLook): Promise<void> {
    for (const [seq, looks] of waiting) {
      if (!live.has(seq)) {
        waiting.delete(seq);
      } else if (looks >= patientLooks) {
        const ticket = await this.#looks.answered(seq);
        if (ticket !== undefined) this.#inHands.push(ticket);
        waiting.delete(seq);
      } else if (seq <= deliveredTo) {
        waiting.set(seq, looks + 1);
      }
    }
  }
}

/** The queues behind that of tickets, as far as they are about one split. */
export function looksAt(link: Link, split: Split): QueueLooks {
  const { streams, subjects } = link.names;
  return {
    rollouts: () => lookInto(link, 'rollouts'),
    answered: async (seq) => {
      const ticket = await ticketAt(link, streams.rollouts, seq);
      const ticketId = ticket && readableId(ticket.ticketId);
      if (ticket !== undefined)
        link.log.warn({ ticketId, seq }, 'a reward service holds a group for long');
      return ticket;
    },
    async scored() {
      const subject = subjects.scored(split);
      const state = await streamState(link, streams.scored, subject);
      return state && (state.subjects?.[subject] ?? 0);
    },
  };
}
