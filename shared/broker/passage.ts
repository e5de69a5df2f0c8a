import type { Split } from '../wire/ticket.js';
import type { Link } from './link.js';
import { streamState } from './stream-state.js';

/** The queues that somebody passes on what he takes from, in their order. */
const passedOn = ['tickets', 'rollouts'] as const;
type PassedOn = (typeof passedOn)[number];

/** What a queue holds: so many messages, within these sequence numbers. */
export interface QueueSpan {
  readonly messages: number;
  readonly first: number;
  readonly last: number;
}

/** How the queues are now; undefined while there is none. */
export interface QueueLooks {
  readonly span: (queue: PassedOn) => Promise<QueueSpan | undefined>;
  /** How many scored groups there are, those included that their checkpoint will acknowledge. */
  readonly scored: () => Promise<number | undefined>;
}

/**
 * Follows the tickets that were out at some moment until nothing that came of them can be in a queue any
 * more. Whoever takes a message acknowledges it only when the next queue, or that of dead letters, has
 * what became of it. So once the oldest message of a queue is younger than a look at it, everything
 * from before is in the next one or beyond; and queues need not run empty for that.
 */
export class Passage {
  readonly #looks: QueueLooks;
  readonly #held: () => number;
  #place = 0; // of the queue that is passed now
  #newest = Infinity; // sequence number in it of what is followed, at most

  /** @param held how many scored groups have been received and not acknowledged. */
  constructor(looks: QueueLooks, held: () => number) {
    this.#looks = looks;
    this.#held = held;
  }

  /**
   * Looks how far it is by now.
   *
   * @returns whether it is over: of every ticket that was out when this was first called, and is not
   *   lost, the scored group has been received, or there is a dead letter.
   */
  async isOver(): Promise<boolean> {
    for (; this.#place < passedOn.length; this.#place++) {
      const span = await this.#looks.span(passedOn[this.#place]!);
      if (span === undefined) return false;
      // A stream that came back without its end numbers what is new from there.
      this.#newest = Math.min(this.#newest, span.last);
      if (span.messages > 0 && span.first <= this.#newest) return false;
      this.#newest = Infinity;
    }
    const scored = await this.#looks.scored();
    return scored !== undefined && scored <= this.#held();
  }
}

/** Looks at the queues of a run, as far as they are about one split. */
export function looksAt(link: Link, split: Split): QueueLooks {
  const { streams, subjects } = link.names;
  return {
    async span(queue) {
      const state = await streamState(link, streams[queue]);
      if (state === undefined) return undefined;
      return { messages: state.messages, first: state.first_seq, last: state.last_seq };
    },
    async scored() {
      const subject = subjects.scored(split);
      const state = await streamState(link, streams.scored, subject);
      return state && (state.subjects?.[subject] ?? 0);
    },
  };
}
