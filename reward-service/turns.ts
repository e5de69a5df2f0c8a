import { RequestRefused } from './score-requests.js';

/** Work that can be interrupted between two steps. */
export type Steps<T> = Generator<void, T>;

interface TurnOptions {
  /** Time in ms that a request works before it yields to everything else on this thread. */
  readonly sliceMs?: number;
  /** Maximum time of a request in ms, from the end of its body. */
  readonly wholeMs?: number;
  /** A monotonic clock in ms, and a wait that lets everything else run; replaced in tests. */
  readonly now?: () => number;
  readonly pause?: () => Promise<void>;
}

/**
 * Runs one request at a time and yields the thread every few milliseconds. The rollouts of the run are
 * scored on the same thread, so a group waits for at most one slice, however many requests there are.
 */
export class Turns {
  readonly #sliceMs: number;
  readonly #wholeMs: number;
  readonly #now: () => number;
  readonly #pause: () => Promise<void>;
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: TurnOptions = {}) {
    this.#sliceMs = options.sliceMs ?? 5;
    this.#wholeMs = options.wholeMs ?? 5_000;
    this.#now = options.now ?? (() => performance.now());
    this.#pause = options.pause ?? (() => new Promise((resolve) => setImmediate(resolve)));
  }

  /**
   * The result of the steps and their working time in ms, after all earlier requests have ended.
   *
   * @throws {RequestRefused} 503 when their time is up, in the queue or between two steps.
   */
  run<T>(steps: Steps<T>): Promise<{ value: T; busyMs: number }> {
    const deadline = this.#now() + this.#wholeMs;
    const result = this.#last.then(() => this.#finish(steps, deadline));
    this.#last = result.catch(() => undefined);
    return result;
  }

  async #finish<T>(steps: Steps<T>, deadline: number): Promise<{ value: T; busyMs: number }> {
    let busyMs = 0;
    for (let done = 0; ;) {
      await this.#pause();
      const begun = this.#now();
      for (let now = begun; now - begun < this.#sliceMs; now = this.#now()) {
        if (now >= deadline) {
          throw new RequestRefused(
            503,
            `${this.#wholeMs / 1_000} s are over and ${done} completions scored; send fewer at once, or try again later`,
            Math.ceil(this.#wholeMs / 1_000),
          );
        }
        const step = steps.next();
        if (step.done === true) return { value: step.value, busyMs: busyMs + this.#now() - begun };
        done++;
      }
      busyMs += this.#now() - begun;
    }
  }
}
