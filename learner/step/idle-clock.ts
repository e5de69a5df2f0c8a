import { Counter } from 'prom-client';
import { handled } from '../session/handled.js';

/** Why the learner has nothing for the backend to do. */
export type IdleCause =
  | 'groups' // too few groups are here
  | 'window' // enough are here, but an older one must be waited for
  | 'version'; // no ticket may be issued before a version has reached the actors

const idleSeconds = new Counter({
  name: 'rl_learner_idle_seconds_total',
  help: 'Seconds in which the backend had no work of this learner, by what the learner waited for.',
  labelNames: ['cause'],
});

/**
 * Measures how long the backend had none of our work in flight, by cause. Without a cause the time
 * belongs to nobody: an evaluation runs, or the run is ending.
 */
export class IdleClock {
  readonly #now: () => number;
  readonly #seconds: Record<IdleCause, number> = { groups: 0, window: 0, version: 0 };
  #inFlight = 0;
  #cause: IdleCause | undefined;
  #since: number;

  /** @param now seconds of a clock that only rises. */
  constructor(now: () => number) {
    this.#now = now;
    this.#since = now();
  }

  /** The learner waits for this from now on, when the backend has nothing to do. */
  waitFor(cause: IdleCause | undefined): void {
    this.#advance();
    this.#cause = cause;
  }

  /** Counts `work` as in flight until it settles. */
  during<T>(work: Promise<T>): Promise<T> {
    this.#advance();
    this.#inFlight += 1;
    return handled(
      work.finally(() => {
        this.#advance();
        this.#inFlight -= 1;
      }),
    );
  }

  /** Idle seconds so far. */
  get seconds(): Readonly<Record<IdleCause, number>> {
    this.#advance();
    return { ...this.#seconds };
  }

  #advance(): void {
    const now = this.#now();
    if (this.#inFlight === 0 && this.#cause !== undefined) {
      this.#seconds[this.#cause] += now - this.#since;
      idleSeconds.inc({ cause: this.#cause }, now - this.#since);
    }
    this.#since = now;
  }
}
