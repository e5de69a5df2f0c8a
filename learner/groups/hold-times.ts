/** What the holding of tickets is judged by. */
export interface HoldLimits {
  /** A limit that somebody set, in seconds; undefined: it follows from what answers take. */
  readonly fixedSeconds?: number | undefined;
  /** After so long a ticket of a dead actor goes to another, in seconds. */
  readonly leaseSeconds: number;
  /** What was usual before this learner started, in seconds; undefined in a new run. */
  readonly usualBefore?: number | undefined;
}

const remembered = 256; // tickets
const enough = 4; // to tell what is usual
const limitFactor = 20; // of the median: a long answer, or an actor that is that much slower than most
const unusualFactor = 5;
const unknownLimit = 600; // seconds, before enough is known
const unknownUnusual = 30;
const leastUnusual = 10;
const largestLimit = 86_400;

/**
 * How long actors hold tickets, and from when on that is too long: by the median of those that they were done
 * with, which no minority of slow or dishonest actors moves. Where all have become slower than the limit,
 * nothing is done in time any more, so with each time that only late ones are seen the limit doubles.
 */
export class HoldTimes {
  readonly #limits: HoldLimits;
  readonly #recent: number[] = []; // seconds
  #doublings = 0;

  constructor(limits: HoldLimits) {
    this.#limits = limits;
  }

  /** A ticket was held for so long, in seconds, and then answered or given up by whoever held it. */
  record(seconds: number): void {
    this.#recent.push(seconds);
    if (this.#recent.length > remembered) this.#recent.shift();
    this.#doublings = 0;
  }

  /** Tickets were held beyond the limit. */
  exceeded(): void {
    this.#doublings += 1;
  }

  /** Seconds after which a ticket is taken from who holds it. */
  get limit(): number {
    const { fixedSeconds, leaseSeconds } = this.#limits;
    if (fixedSeconds !== undefined) return fixedSeconds;
    const { median } = this;
    const base =
      median === undefined ? unknownLimit : Math.max(2 * leaseSeconds, limitFactor * median);
    return Math.min(largestLimit, base * 2 ** Math.min(this.#doublings, 20));
  }

  /** Seconds after which it is worth a warning; at most the limit. */
  get unusual(): number {
    const { median } = this;
    const least = median === undefined ? unknownUnusual : leastUnusual;
    return Math.min(this.limit, Math.max(least, unusualFactor * (median ?? 0)));
  }

  /** Seconds; undefined while too little is known. */
  get median(): number | undefined {
    if (this.#recent.length < enough) return this.#limits.usualBefore;
    const sorted = this.#recent.toSorted((a, b) => a - b);
    return sorted[Math.floor(sorted.length / 2)]!;
  }
}
