import { createRandom } from '../../shared/base/random.js';
import { type Attempts, signalProbability, withGroup } from '../../shared/rl/signal.js';
import type { CurriculumState } from '../../shared/wire/curriculum-state.js';

/**
 * A sequence of problems that goes through all of them once an epoch, each time in an order of its own.
 * A function of the seed alone: the same for whoever asks, and whenever.
 */
export class EpochOrder {
  readonly #epochs = new Map<number, readonly number[]>();

  /** @param size how many problems there are, at least one. */
  constructor(
    private readonly seed: number,
    private readonly size: number,
  ) {
    if (size === 0) throw new RangeError('EpochOrder: no problem to train on');
  }

  /** The index of the problem at a position of the sequence. */
  problemAt(order: number): number {
    const epoch = Math.floor(order / this.size);
    let problems = this.#epochs.get(epoch);
    if (problems === undefined) {
      const all = Array.from({ length: this.size }, (_, index) => index);
      problems = createRandom(`${this.seed} epoch ${epoch}`).shuffle(all);
      this.#epochs.set(epoch, problems);
      this.#epochs.delete(epoch - 2); // a reissue may still reach into the one before
    }
    return problems[order % this.size]!;
  }
}

/** A problem, by its index, and how it went so far. */
export type TriedProblem = readonly [problem: number, rollouts: number, correct: number];

/** How many problems are remembered: more than a run replays between two checkpoints. */
const maxRemembered = 4_096;

/** What is known of the problems that were tried. */
export class ReplayPool {
  readonly #tried: Map<number, Attempts>; // those heard of last at the end

  constructor(
    private readonly groupSize: number,
    tried: readonly TriedProblem[],
  ) {
    this.#tried = new Map(
      tried.map(([problem, rollouts, correct]) => [problem, { rollouts, correct }]),
    );
  }

  /** Another group of a problem came to its end. */
  record(problem: number, group: Attempts): void {
    const before = this.#tried.get(problem);
    this.#tried.delete(problem);
    this.#tried.set(problem, withGroup(before, group));
  }

  /**
   * What is known as of now. Of too many problems those are forgotten that are least likely to have
   * signal, the longest unheard of first; epochs come by them again.
   */
  snapshot(): TriedProblem[] {
    const tried = [...this.#tried].map(([problem, attempts], i) => ({
      entry: [problem, attempts.rollouts, attempts.correct] as const,
      signal: signalProbability(attempts, this.groupSize),
      i,
    }));
    const excess = Math.max(0, tried.length - maxRemembered);
    const forgotten = [...tried].sort((a, b) => a.signal - b.signal || a.i - b.i).slice(0, excess);
    for (const { entry } of forgotten) this.#tried.delete(entry[0]);
    return tried.filter(({ entry }) => this.#tried.has(entry[0])).map(({ entry }) => entry);
  }
}

/** Draws problems from a snapshot, each in proportion to how likely a group of it is to have signal. */
export class ReplayDraw {
  readonly #problems: readonly number[];
  readonly #cumulative: Float64Array;

  constructor(tried: readonly TriedProblem[], groupSize: number) {
    this.#problems = tried.map(([problem]) => problem);
    let sum = 0;
    this.#cumulative = Float64Array.from(tried, ([, rollouts, correct]) => {
      sum += signalProbability({ rollouts, correct }, groupSize);
      return sum;
    });
  }

  /** @param chance uniform in [0, 1). @returns undefined while nothing was tried. */
  at(chance: number): number | undefined {
    const target = chance * (this.#cumulative.at(-1) ?? 0);
    const index = this.#cumulative.findIndex((sum) => sum > target);
    return this.#problems[index];
  }
}

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
