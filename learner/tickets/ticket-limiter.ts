import type { RunConfig } from '../../shared/run/run-config.js';
import {
  type AdaptiveBound,
  firstBound,
  nextBound,
  nextTicketLimit,
  type StepSupply,
  type TicketLimit,
  ticketBound,
} from '../../shared/rl/capacity.js';
import type { TicketEntry, TicketTable } from './ticket-table.js';

export interface LimiterOptions
  extends
    Pick<RunConfig, 'groupsPerBatch' | 'maxStepsOffPolicy'>,
    Partial<Pick<RunConfig, 'isBoundAdaptive'>> {
  readonly minibatchSize: number; // groups
  /** Whether only tickets are issued that the learner has a use for, instead of all that the law allows. */
  readonly isFrugal?: boolean;
}

/**
 * Limits tickets within what the capacity law allows. Synchronous and without I/O, like `Admission`, which owns it.
 *
 * - **Limit**: no more tickets are issued than the learner has a use for (`nextTicketLimit`).
 * - **Adaptive bound**: with `isBoundAdaptive`, tickets are issued for a smaller bound that follows the effective sample size
 *   (`nextBound`).
 */
export class TicketLimiter<Group> {
  readonly #options: LimiterOptions;
  readonly #table: Pick<TicketTable<Group>, 'entries' | 'entry' | 'outstanding'>;
  readonly #computed = new Set<number>(); // orders of taken groups that the backend has computed
  #fewestReady: number | undefined; // since the newest confirmation
  #limit: TicketLimit | undefined; // undefined: that of the law
  #adaptive: AdaptiveBound | undefined;

  constructor(
    options: LimiterOptions,
    table: Pick<TicketTable<Group>, 'entries' | 'entry' | 'outstanding'>,
  ) {
    this.#options = options;
    this.#table = table;
    this.#adaptive = options.isBoundAdaptive === true ? firstBound : undefined;
  }

  /** The staleness for which tickets are issued now, in steps; at most `maxStepsOffPolicy`. */
  get bound(): number {
    return Math.min(this.#options.maxStepsOffPolicy, this.#adaptive?.steps ?? Infinity);
  }

  /** How many tickets may be outstanding now, apart from those whose groups the backend has computed. */
  get limit(): number {
    return Math.min(this.#limit?.tickets ?? Infinity, this.#most);
  }

  /** How many tickets may be issued now as far as the limit goes; the law may allow fewer. */
  get room(): number {
    const unfinished = this.#table.outstanding - this.#computed.size;
    // The missing groups may be with an actor that died, so a waiting learner may have up to twice the limit outstanding.
    return Math.floor(this.limit * (this.#isStarved ? 2 : 1)) - unfinished;
  }

  /** Records that the backend has computed a minibatch. */
  recordComputed(orders: readonly number[]): void {
    for (const order of orders) {
      if (this.#table.entry(order)?.state === 'taken') this.#computed.add(order); // not put back meanwhile
    }
    const ready = this.#table
      .entries()
      .filter((entry) => entry.state === 'arrived' || this.#isComputing(entry)).length;
    this.#fewestReady = Math.min(this.#fewestReady ?? ready, ready);
  }

  /** Forgets groups that are trained on or were put back. */
  forget(orders: readonly number[]): void {
    for (const order of orders) this.#computed.delete(order);
  }

  /**
   * Adapts the limit to the step that was just confirmed, if the limiter is frugal. The first step of a session only
   * starts the limit at the most that the law allows, because its time includes the start of the actors.
   */
  adaptLimit(time: Omit<StepSupply, 'fewestReady'>): void {
    const { groupsPerBatch, minibatchSize, isFrugal = false } = this.#options;
    if (!isFrugal) return;
    const supply = { ...time, fewestReady: this.#fewestReady ?? 0 };
    const sizes = { groupsPerBatch, minibatchSize, most: this.#most };
    this.#limit =
      this.#limit === undefined
        ? { tickets: this.#most, idleShare: 0 }
        : nextTicketLimit(this.#limit, supply, sizes);
    this.#fewestReady = undefined;
  }

  /**
   * Adapts the bound to a confirmed step, if it is adaptive. A restored learner calls it with each step of its
   * history, in order.
   *
   * @param metrics of the step, by their names in `metrics.jsonl`.
   */
  adaptBound(metrics: Readonly<Record<string, number>>): void {
    if (this.#adaptive === undefined) return;
    const age = { essRatio: metrics['ess_ratio'], staleness: metrics['staleness/mean'] };
    this.#adaptive = nextBound(this.#adaptive, age, this.#options.maxStepsOffPolicy);
  }

  get #most(): number {
    return ticketBound(this.bound, this.#options.groupsPerBatch);
  }

  /** Whether the backend has nothing to compute, and too few groups have arrived for a minibatch. */
  get #isStarved(): boolean {
    const entries = this.#table.entries();
    const arrived = entries.filter(({ state }) => state === 'arrived').length;
    return (
      arrived < this.#options.minibatchSize && !entries.some((entry) => this.#isComputing(entry))
    );
  }

  /** Whether a group was sent to the backend and is not computed yet. */
  #isComputing({ state, order }: TicketEntry<Group>): boolean {
    return state === 'taken' && !this.#computed.has(order);
  }
}
