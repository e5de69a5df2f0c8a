import { setTimeout as sleep } from 'node:timers/promises';

export const defaultStillMs = 60_000;

/** Processes that all start at once may be slow on a busy machine. */
const startMs = 300_000;

/** Waits for the first step, which has a separate limit. @returns whether it came. */
export async function begins(
  still: StillWatch,
  hasBegun: () => boolean | Promise<boolean>,
): Promise<boolean> {
  using _outage = still.outage('the start');
  for (const deadline = performance.now() + startMs; performance.now() < deadline;) {
    if (await hasBegun()) return true;
    await sleep(20);
  }
  still.violations.push(`there was no first step for ${startMs / 1_000} s`);
  return false;
}

/**
 * Detects a standstill of training: no step for a limit, excluding the time in
 * which this suite itself holds something down. Time after that, such as a restart, counts.
 */
export class StillWatch {
  readonly #limitMs: number;
  readonly #steps: () => number;
  readonly #now: () => number;
  #stepsBefore = 0;
  #since: number; // the last step, or the end of the last outage
  #outages = 0; // in progress
  #after = 'the start';
  #longestMs = 0;
  /** One sentence for each time that the limit was exceeded. */
  readonly violations: string[] = [];
  #hasComplained = false;

  /** @param now in ms. */
  constructor(limitMs: number, steps: () => number, now: () => number = () => performance.now()) {
    this.#limitMs = limitMs;
    this.#steps = steps;
    this.#now = now;
    this.#since = now();
  }

  /** The longest time without a step, in ms, outages excluded. */
  get longestMs(): number {
    return this.#longestMs;
  }

  /** Training has exceeded the limit and not continued since. */
  get isStill(): boolean {
    this.look();
    return this.#hasComplained;
  }

  /** Marks an outage by this suite until the returned object is disposed of. */
  outage(what: string): Disposable {
    this.look();
    this.#outages += 1;
    this.#after = what;
    return {
      [Symbol.dispose]: () => {
        this.look();
        this.#outages -= 1;
        this.#since = this.#now();
      },
    };
  }

  /** Records an event from which training must recover by itself. */
  after(what: string): void {
    this.look();
    this.#after = what;
  }

  /** Call it regularly. */
  look(): void {
    const [steps, now] = [this.#steps(), this.#now()];
    if (steps > this.#stepsBefore) {
      this.#stepsBefore = steps;
      this.#since = now;
      this.#hasComplained = false;
      return;
    }
    if (this.#outages > 0) {
      this.#since = now;
      return;
    }
    const stillMs = now - this.#since;
    this.#longestMs = Math.max(this.#longestMs, stillMs);
    if (stillMs <= this.#limitMs || this.#hasComplained) return;
    this.#hasComplained = true;
    this.violations.push(
      `training stood still for ${Math.floor(stillMs / 1_000)} s while everything was healthy, after ${this.#after}`,
    );
  }
}
