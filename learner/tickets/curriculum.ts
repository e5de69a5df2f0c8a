import { createRandom } from '../../shared/base/random.js';
import { type Attempts, signalProbability, withGroup } from '../../shared/rl/signal.js';
import type { CurriculumState } from '../../shared/wire/ledger.js';
import { type Difficulties, DifficultyMix, type DifficultyResults } from './difficulty-mix.js';
import { EpochOrder } from './epoch-order.js';

/** A problem, by its index, and its results so far. */
type TriedProblem = readonly [problem: number, rollouts: number, correct: number];

/** Maximum number of remembered problems: more than a run replays between two checkpoints. */
const maxRemembered = 4_096;

/** The results of the problems that were tried. */
export class ReplayPool {
  readonly #tried: Map<number, Attempts>; // least recently updated first

  constructor(
    private readonly groupSize: number,
    tried: readonly TriedProblem[],
  ) {
    this.#tried = new Map(
      tried.map(([problem, rollouts, correct]) => [problem, { rollouts, correct }]),
    );
  }

  /** Adds the result of another group of a problem. */
  record(problem: number, group: Attempts): void {
    const before = this.#tried.get(problem);
    this.#tried.delete(problem);
    this.#tried.set(problem, withGroup(before, group));
  }

  /**
   * Returns the results so far. If there are too many problems, drops those least likely to have signal,
   * the least recently updated first; a later epoch tries them again.
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

/** Draws problems from a snapshot, each in proportion to the probability that its group has signal. */
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

  /** @param chance uniform in [0, 1). @returns a problem; undefined if none was tried. */
  at(chance: number): number | undefined {
    const target = chance * (this.#cumulative.at(-1) ?? 0);
    const index = this.#cumulative.findIndex((sum) => sum > target);
    return this.#problems[index];
  }
}

export interface CurriculumOptions {
  readonly seed: number;
  readonly groupSize: number;
  /** Share of the tickets that repeat a problem that was tried; less than 1. */
  readonly replayShare: number;
  /** Number of problems. */
  readonly size: number;
  /** If given, tickets that replay nothing choose a difficulty by its groups with signal. */
  readonly difficulties?: Difficulties | undefined;
  /** How many tickets beyond those issued a checkpoint decides, so that issuing need not wait for it. */
  readonly margin: number;
  /** The state in the run's checkpoint; undefined for a new run. */
  readonly state: CurriculumState | undefined;
}

/** The part of the ticket table that shows which problems can be forgotten. */
export interface TicketsSoFar {
  readonly nextOrder: number; // of the first ticket that is not issued yet
  /** Whether the weights of the checkpoint have consumed the ticket. */
  isConsumed(order: number): boolean;
}

/** A snapshot of the results of the groups so far. */
export interface GroupResults {
  readonly tried: readonly TriedProblem[];
  readonly difficulties?: DifficultyResults;
}

/**
 * Difficulty-aware sampling: some tickets repeat a problem that was tried, chosen by the probability that a
 * group of it has signal. The other tickets go through all problems epoch by epoch, or choose a difficulty by its
 * groups with signal and a problem of it.
 *
 * A crash must not change the problem of a ticket, since its group may already be on its way. So the
 * problem is a function of the run's seed and of the ledger: a checkpoint decides all tickets up to
 * `margin` beyond those issued, and later tickets are drawn from the results in the checkpoint. Those may
 * be issued once the checkpoint is in the ledger; a learner that restores it draws the same problems.
 */
export class Curriculum {
  readonly #options: CurriculumOptions;
  readonly #epochs: EpochOrder;
  readonly #mix: DifficultyMix | undefined;
  readonly #pool: ReplayPool;
  readonly #decided: Map<number, number>;
  #decidedTo: number;
  #draw: ReplayDraw; // for orders from `decidedTo` on
  /** For each checkpoint not in the ledger yet, the first order that must wait for it; oldest first. */
  readonly #unwritten: number[] = [];

  constructor(options: CurriculumOptions) {
    const { seed, size, groupSize, difficulties, state } = options;
    this.#options = options;
    this.#epochs = new EpochOrder(seed, size);
    this.#mix = difficulties && new DifficultyMix(seed, difficulties, state?.difficulties ?? []);
    this.#pool = new ReplayPool(groupSize, state?.tried ?? []);
    this.#draw = new ReplayDraw(state?.tried ?? [], groupSize);
    this.#decided = new Map(state?.decided);
    this.#decidedTo = state?.decidedTo ?? 0;
  }

  /** Returns the index of the problem of a ticket that is not consumed. */
  problemAt(order: number): number {
    const problem = order < this.#decidedTo ? this.#decided.get(order) : this.#drawProblem(order);
    if (problem === undefined)
      throw new Error(`ticket ${order} is consumed, so its problem is forgotten`);
    return problem;
  }

  /** Whether a ticket's problem is final, so that the ticket may be issued. */
  isProblemFinal(order: number): boolean {
    return order < (this.#unwritten[0] ?? Infinity);
  }

  get results(): GroupResults {
    const tried = this.#pool.snapshot();
    return this.#mix === undefined ? { tried } : { tried, difficulties: this.#mix.results };
  }

  /** Adds the result of the consumed group of a ticket; it counts from the next checkpoint on. */
  record(order: number, problem: number, group: Attempts): void {
    const { rollouts, correct } = group;
    if (!this.isReplay(order, problem))
      this.#mix?.record(problem, correct > 0 && correct < rollouts);
    this.#pool.record(problem, group);
  }

  /** Ends a step: its groups now count for the difficulties. */
  endStep(): void {
    this.#mix?.endStep();
  }

  /** Whether a ticket repeats a problem that was tried. */
  isReplay(order: number, problem: number): boolean {
    return !(this.#mix?.mayBeAt(order, problem) ?? problem === this.#epochs.problemAt(order));
  }

  /**
   * Returns the state for a checkpoint, and a function to call once the ledger has it. Until then the
   * tickets that it decides may be issued; later ones wait.
   *
   * @param results those known when the weights of the checkpoint were made.
   */
  checkpoint(
    tickets: TicketsSoFar,
    results: GroupResults = this.results,
  ): { state: CurriculumState; written: () => void } {
    const to = Math.max(this.#decidedTo, tickets.nextOrder + this.#options.margin);
    for (let order = this.#decidedTo; order < to; order++) {
      this.#decided.set(order, this.#drawProblem(order));
    }
    for (const order of this.#decided.keys()) {
      if (tickets.isConsumed(order)) this.#decided.delete(order);
    }
    this.#decidedTo = to;
    const { tried, difficulties = [] } = results;
    this.#draw = new ReplayDraw(tried, this.#options.groupSize);
    this.#mix?.use(difficulties);
    this.#unwritten.push(to);
    return {
      state: {
        decidedTo: to,
        decided: [...this.#decided],
        tried: tried.map(([...entry]) => entry),
        ...(this.#mix && { difficulties: difficulties.map(([...entry]) => entry) }),
      },
      written: () => {
        this.#unwritten.shift();
      },
    };
  }

  #drawProblem(order: number): number {
    const { seed, replayShare } = this.#options;
    const random = createRandom(`${seed} problem ${order}`);
    const isReplay = random.next() < replayShare;
    const replayed = isReplay ? this.#draw.at(random.next()) : undefined;
    if (replayed !== undefined) return replayed;
    return this.#mix?.problemAt(order, random.next()) ?? this.#epochs.problemAt(order);
  }
}
