import { createRandom } from '../../shared/base/random.js';
import type { Attempts } from '../../shared/rl/signal.js';
import type { CurriculumState } from '../../shared/wire/curriculum-state.js';
import { EpochOrder } from './epoch-order.js';
import { ReplayDraw, ReplayPool } from './replay-pool.js';

export interface CurriculumOptions {
  readonly seed: number;
  readonly groupSize: number;
  /** Share of the tickets that come back to a problem that was tried; less than 1. */
  readonly replayShare: number;
  /** How many problems there are. */
  readonly size: number;
  /** How many tickets are decided beyond those issued, so that a checkpoint holds nobody up. */
  readonly margin: number;
  /** As the run's checkpoint has it; undefined for a new run. */
  readonly state: CurriculumState | undefined;
}

/** The part of the ticket table that tells which problems need not be remembered. */
export interface TicketsSoFar {
  readonly nextOrder: number; // of the first ticket that is not issued yet
  /** As of the weights that the checkpoint is of. */
  isConsumed(order: number): boolean;
}

/** What is known of the problems that were tried, at some moment. */
export type Tried = ReturnType<ReplayPool['snapshot']>;

/**
 * Difficulty-aware sampling: some tickets come back to a problem that was tried, chosen by how likely a
 * group of it is to have signal; the others explore, going through all problems as ever.
 *
 * Which problem a ticket is about must not change, whatever crashes, since its group may be on its
 * way. So it is a function of the run's seed and of what the ledger says: a checkpoint decides the
 * tickets up to some way ahead of those issued, and later ones are drawn by what was known as of the
 * checkpoint. They may be issued once it is in the ledger, and then whoever restores it draws the same.
 */
export class Curriculum {
  readonly #options: CurriculumOptions;
  readonly #epochs: EpochOrder;
  readonly #pool: ReplayPool;
  readonly #decided: Map<number, number>;
  #decidedTo: number;
  #draw: ReplayDraw; // for orders from `decidedTo` on
  /** From where on tickets wait, for each checkpoint that is not in the ledger yet; oldest first. */
  readonly #unwritten: number[] = [];

  constructor(options: CurriculumOptions) {
    const { seed, size, groupSize, state } = options;
    this.#options = options;
    this.#epochs = new EpochOrder(seed, size);
    this.#pool = new ReplayPool(groupSize, state?.tried ?? []);
    this.#draw = new ReplayDraw(state?.tried ?? [], groupSize);
    this.#decided = new Map(state?.decided);
    this.#decidedTo = state?.decidedTo ?? 0;
  }

  /** The index of the problem of a ticket that is not consumed. */
  problemAt(order: number): number {
    const decided = order < this.#decidedTo ? this.#decided.get(order) : this.#drawn(order);
    if (decided === undefined)
      throw new Error(`ticket ${order} is consumed, its problem forgotten`);
    return decided;
  }

  /** Whether a ticket's problem is settled for good, so that the ticket may be issued. */
  isSettled(order: number): boolean {
    return order < (this.#unwritten[0] ?? Infinity);
  }

  get tried(): Tried {
    return this.#pool.snapshot();
  }

  /** A group was consumed: what is learnt of its problem counts from the next checkpoint on. */
  record(problem: number, group: Attempts): void {
    this.#pool.record(problem, group);
  }

  /**
   * What a checkpoint keeps, and a call for when the ledger has it. Between the two the tickets that it
   * decides may be issued; later ones wait.
   *
   * @param tried what was known when its weights were made.
   */
  checkpoint(
    tickets: TicketsSoFar,
    tried: Tried = this.tried,
  ): { state: CurriculumState; written: () => void } {
    const to = Math.max(this.#decidedTo, tickets.nextOrder + this.#options.margin);
    for (let order = this.#decidedTo; order < to; order++) {
      this.#decided.set(order, this.#drawn(order));
    }
    for (const order of this.#decided.keys()) {
      if (tickets.isConsumed(order)) this.#decided.delete(order);
    }
    this.#decidedTo = to;
    this.#draw = new ReplayDraw(tried, this.#options.groupSize);
    this.#unwritten.push(to);
    return {
      state: {
        decidedTo: to,
        decided: [...this.#decided],
        tried: tried.map(([...entry]) => entry),
      },
      written: () => {
        this.#unwritten.shift();
      },
    };
  }

  #drawn(order: number): number {
    const { seed, replayShare } = this.#options;
    const random = createRandom(`${seed} problem ${order}`);
    const isReplay = random.next() < replayShare;
    const replayed = isReplay ? this.#draw.at(random.next()) : undefined;
    return replayed ?? this.#epochs.problemAt(order);
  }
}
