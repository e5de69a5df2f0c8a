import type { RunConfig } from '../../shared/run/run-config.js';
import { type TicketDemand, ticketsWanted } from '../../shared/rl/capacity.js';

/** Decides when the next ticket that the capacity law allows is issued. */
export interface Pace {
  /** Resolves to whether a ticket should be issued now; if not, after a pause, or once `signal` aborts. */
  isWanted(signal: AbortSignal): Promise<boolean>;
  /** Forgets what actors wanted, because no ticket could be issued for a while. */
  reset(): void;
}

/**
 * Whether the learner chooses when to issue a ticket that the capacity law allows. In synchronous training the version of a
 * ticket does not depend on the moment of its issue, and a sample lag needs all tickets of a version to be issued by it.
 */
export function isJustInTime(config: Pick<RunConfig, 'maxStepsOffPolicy' | 'sampleLag'>): boolean {
  return config.maxStepsOffPolicy > 0 && config.sampleLag === 0;
}

/** Issues tickets as early as the capacity law allows. */
export const atOnce: Pace = {
  isWanted: () => Promise.resolve(true),
  reset: () => undefined,
};

export interface JustInTimeOptions {
  /** Tickets that may wait for an actor. */
  readonly ahead: number;
  /** Reads the queue; undefined if it cannot be read, and then the law and the limiter alone decide. */
  readonly read: () => Promise<TicketDemand | undefined>;
  /** Resolves after the time between two reads that find nothing wanted, or once `signal` aborts. */
  readonly pause: (signal: AbortSignal) => Promise<unknown>;
}

/**
 * Issues tickets just in time: when an actor waits for one, or fewer than `ahead` wait for an actor. It asks the server
 * of the queue, so it needs no knowledge of the actors: any number may come and go, each with its own concurrency.
 */
export class JustInTime implements Pace {
  readonly #options: JustInTimeOptions;
  #wanted = 0; // tickets, of the last read

  constructor(options: JustInTimeOptions) {
    this.#options = options;
  }

  async isWanted(signal: AbortSignal): Promise<boolean> {
    const { ahead, read, pause } = this.#options;
    if (this.#wanted === 0) {
      const demand = await read();
      this.#wanted = demand === undefined ? 1 : ticketsWanted(demand, ahead);
    }
    if (this.#wanted > 0) {
      this.#wanted -= 1;
      return true;
    }
    await pause(signal);
    return false;
  }

  reset(): void {
    this.#wanted = 0;
  }
}
