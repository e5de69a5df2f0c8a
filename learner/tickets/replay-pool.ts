import { signalProbability, withGroup, type Attempts } from '../../shared/rl/signal.js';

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
