import { setTimeout as sleep } from 'node:timers/promises';

export const defaultStillMs = 60_000;

/** Processes that all start at once may take their time on a busy machine. */
const startMs = 300_000;

/** Waits for the first step, which has a limit of its own. @returns whether there was one. */
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
 * Tells when training stands still although nothing is wrong: no step for so long, not counting the time in
 * which this suite itself holds something down. What comes after that, such as a restart, counts.
 */
export class StillWatch {
  readonly #limitMs: number;
  readonly #steps: () => number;
  readonly #now: () => number;
  #stepsBefore = 0;
  #since: number; // the last step, or the end of the last outage
  #outages = 0; // under way
  #after = 'the start';
  #longestMs = 0;
  /** A sentence, each time that the limit was passed. */
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

  /** Training has passed the limit and has not gone on since. */
  get isStill(): boolean {
    this.look();
    return this.#hasComplained;
  }

  /** This suite holds something down until what is returned is disposed of. */
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

  /** Something happened from which training is to recover by itself. */
  after(what: string): void {
    this.look();
    this.#after = what;
  }

  /** To be called every now and then. */
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
