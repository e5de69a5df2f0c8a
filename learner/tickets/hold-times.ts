interface HoldLimits {
  /** A limit set by the user, in seconds; undefined: the limit follows the measured hold times. */
  readonly fixedSeconds?: number | undefined;
  /** Seconds after which the ticket of a dead actor goes to another actor. */
  readonly leaseSeconds: number;
  /** Median hold time before this learner started, in seconds; undefined in a new run. */
  readonly usualBefore?: number | undefined;
}

const maxSamples = 32; // tickets per actor
const maxActors = 256;
const minSamples = 4; // for a median
const limitFactor = 20; // of the median: allows for a long answer, or an actor that much slower than most
const unusualFactor = 5;
const initialLimit = 600; // seconds, before enough is known
const initialUnusual = 30;
const minUnusual = 10;
const maxLimit = 86_400;

/**
 * How long actors hold tickets, and the limit after which a ticket is withdrawn. The limit follows the median
 * over actors of each actor's median hold time. A minority of actors cannot move it: neither slow ones nor one that
 * answers a hundred tickets while another answers one. With two actors, a dishonest one moves it by a bounded
 * factor. If all actors have become slower than the limit, no ticket would ever finish, so the limit doubles each
 * time tickets exceed it, until a ticket finishes in time.
 */
export class HoldTimes {
  readonly #limits: HoldLimits;
  readonly #recent = new Map<string, number[]>(); // seconds by actor, the least recently heard first
  #doublings = 0;

  constructor(limits: HoldLimits) {
    this.#limits = limits;
  }

  /** Records how long an actor held a ticket, in seconds, before it answered. */
  record(seconds: number, actor: string): void {
    this.recordLate(seconds, actor);
    this.#doublings = 0;
  }

  /** Records the hold time of an answer to a ticket that had been withdrawn. */
  recordLate(seconds: number, actor: string): void {
    const recent = [...(this.#recent.get(actor) ?? []), seconds].slice(-maxSamples);
    this.#recent.delete(actor);
    this.#recent.set(actor, recent);
    if (this.#recent.size > maxActors) this.#recent.delete(this.#recent.keys().next().value!);
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
    const { leaseSeconds, usualBefore } = this.#limits;
    const actors = [...this.#recent.values()];
    if (actors.reduce((sum, { length }) => sum + length, 0) < minSamples) return usualBefore;
    const medians = actors.map(upperMedian).sort((a, b) => a - b);
    const upper = upperMedian(medians);
    if (medians.length % 2 === 1) return upper;
    // The geometric mean of the middle two, one of which may lie. So a very short time is raised to the longest that
    // cannot move the limit, or to the other one if that is shorter.
    const lower = medians[medians.length / 2 - 1]!;
    return Math.sqrt(Math.max(lower, Math.min(upper, (2 * leaseSeconds) / limitFactor)) * upper);
  }
}

function upperMedian(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
