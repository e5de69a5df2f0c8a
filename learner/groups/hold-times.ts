export interface HoldLimits {
  /** A limit set by the user, in seconds; undefined: the limit follows the measured hold times. */
  readonly fixedSeconds?: number | undefined;
  /** Seconds after which the ticket of a dead actor goes to another actor. */
  readonly leaseSeconds: number;
  /** Median hold time before this learner started, in seconds; undefined in a new run. */
  readonly usualBefore?: number | undefined;
}

const maxSamples = 256; // tickets
const minSamples = 4; // for a median
const limitFactor = 20; // of the median: allows for a long answer, or an actor that much slower than most
const unusualFactor = 5;
const initialLimit = 600; // seconds, before enough is known
const initialUnusual = 30;
const minUnusual = 10;
const maxLimit = 86_400;

/**
 * How long actors hold tickets, and the limit after which a ticket is withdrawn. The limit follows the median
 * hold time of finished tickets, which a minority of slow or dishonest actors cannot move. If all actors have
 * become slower than the limit, no ticket would ever finish, so the limit doubles each time tickets exceed it,
 * until a ticket finishes in time.
 */
export class HoldTimes {
  readonly #limits: HoldLimits;
  readonly #recent: number[] = []; // seconds
  #doublings = 0;

  constructor(limits: HoldLimits) {
    this.#limits = limits;
  }

  /** Records how long a ticket was held, in seconds, before its actor answered it or gave it up. */
  record(seconds: number): void {
    this.#recent.push(seconds);
    if (this.#recent.length > maxSamples) this.#recent.shift();
    this.#doublings = 0;
  }

  /** Records that tickets were held beyond the limit. */
  exceeded(): void {
    this.#doublings += 1;
  }

  /** Seconds after which a ticket is withdrawn from the actor that holds it. */
  get limit(): number {
    const { fixedSeconds, leaseSeconds } = this.#limits;
    if (fixedSeconds !== undefined) return fixedSeconds;
    const { median } = this;
    const base =
      median === undefined ? initialLimit : Math.max(2 * leaseSeconds, limitFactor * median);
    return Math.min(maxLimit, base * 2 ** Math.min(this.#doublings, 20));
  }

  /** Seconds after which a held ticket is worth a warning; at most the limit. */
  get unusual(): number {
    const { median } = this;
    const least = median === undefined ? initialUnusual : minUnusual;
    return Math.min(this.limit, Math.max(least, unusualFactor * (median ?? 0)));
  }

  /** Median hold time in seconds; undefined while too little is known. */
  get median(): number | undefined {
    if (this.#recent.length < minSamples) return this.#limits.usualBefore;
    const sorted = this.#recent.toSorted((a, b) => a - b);
    return sorted[Math.floor(sorted.length / 2)]!;
  }
}
