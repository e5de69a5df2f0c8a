import type { Passage } from '../../shared/broker/passage.js';
import { type Attempt, messageIdOf } from '../../shared/wire/ticket-ids.js';

/** How often somebody should look, in milliseconds; two looks, at least, find what is lost. */
export const lostLookMs = 2_000;

export interface LostTicketsOptions {
  /** What is out and not heard of. */
  readonly awaited: () => readonly Attempt[];
  /** Begins to follow what is in the queues now. */
  readonly pass: () => Pick<Passage, 'isOver'>;
  /** Nothing will ever be heard of it. */
  readonly onLost: (ticket: Attempt) => void;
}

/**
 * Finds the tickets that are out and in no queue, for which a run would wait for ever. When a process
 * ends, NATS has all that it acknowledged; a power failure may take what was not on the disk yet, an
 * actor may acknowledge a ticket and send nothing, and somebody may purge a stream by hand.
 *
 * A ticket is lost if everything that was in the queues while it was out has passed through them and
 * nothing was heard of it, and neither is at the next look: a dead letter takes a moment to be read.
 */
export class LostTickets {
  readonly #options: LostTicketsOptions;
  #suspected: readonly Attempt[] = [];
  #missing: readonly Attempt[] = [];
  #passage: Pick<Passage, 'isOver'> | undefined;

  constructor(options: LostTicketsOptions) {
    this.#options = options;
  }

  /** One look at a time. */
  async look(): Promise<void> {
    const { awaited, pass, onLost } = this.#options;
    const missing = among(this.#missing, awaited());
    this.#missing = [];
    missing.forEach(onLost);

    if (this.#passage === undefined) {
      this.#suspected = awaited();
      if (this.#suspected.length === 0) return;
      this.#passage = pass();
    }
    if (!(await this.#passage.isOver())) return;
    this.#passage = undefined;
    this.#missing = among(this.#suspected, awaited());
  }
}

function among(some: readonly Attempt[], all: readonly Attempt[]): Attempt[] {
  const ids = new Set(all.map(messageIdOf));
  return some.filter((ticket) => ids.has(messageIdOf(ticket)));
}
