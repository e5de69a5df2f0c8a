import { Counter } from 'prom-client';
import { IdleTime } from '../../shared/base/idle-time.js';
import { markHandled } from '../../shared/base/task-scope.js';

/** Why the learner has no work for the backend. */
export type IdleCause =
  | 'groups' // too few groups have arrived
  | 'window' // enough have arrived, but the step must wait for an older one
  | 'version'; // no ticket may be issued before a version has reached the actors

const idleSeconds = new Counter({
  name: 'rl_learner_idle_seconds_total',
  help: 'Seconds in which the backend had no work of this learner, by what the learner waited for.',
  labelNames: ['cause'],
});

/**
 * Measures how long the backend had none of our work in flight, by cause. Time without a cause is not
 * counted: an evaluation runs, or the run is ending.
 */
export class IdleClock {
  readonly #clock: IdleTime<IdleCause>;
  #inFlight = 0;
  #cause: IdleCause | undefined;

  /** @param now seconds of a clock that only rises. */
  constructor(now: () => number) {
    this.#clock = new IdleTime({ groups: 0, window: 0, version: 0 }, now, (cause, seconds) => {
      idleSeconds.inc({ cause }, seconds);
    });
  }

  /** Sets the cause that idle time counts for from now on. */
  waitFor(cause: IdleCause | undefined): void {
    this.#cause = cause;
    this.#count(0);
  }

  /** Counts `work` as in flight until it settles. */
  during<T>(work: Promise<T>): Promise<T> {
    this.#count(1);
    return markHandled(
      work.finally(() => {
        this.#count(-1);
      }),
    );
  }

  /** Idle seconds so far. */
  get seconds(): Readonly<Record<IdleCause, number>> {
    return this.#clock.seconds;
  }

  #count(change: number): void {
    this.#inFlight += change;
    this.#clock.idleFor(this.#inFlight === 0 ? this.#cause : undefined);
  }
}
