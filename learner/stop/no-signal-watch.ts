import { Gauge } from 'prom-client';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';

const streak = new Gauge({
  name: 'rl_zero_variance_streak_groups',
  help: 'Groups skipped in a row for having no variance; --stop-zero-variance of them end the run.',
});

/** Groups in a row of which nothing can be learnt, since all rollouts of each earned the same. */
export interface NoSignalStreak {
  readonly groups: number;
  readonly reward: number; // mean of their rollouts
}

/** Where one actor answers nearly all tickets, so many times the limit end the run all the same. */
const patience = 10;

/**
 * Notices when no group has variance any more: then no step comes that could end the run or be judged.
 * A policy that always says the same thing gets there, one that solves everything, and one that solves nothing.
 *
 * An actor that only repeats one answer is done with a ticket at once, and so can answer a thousand before another
 * one answers any. So while others that have answered live, the groups of the actor with the most count
 * no more than those of all others together.
 */
export class NoSignalWatch {
  readonly #limit: number;
  readonly #live: () => readonly string[];
  readonly #seen = new Set<string>(); // actors that answered, with variance or without
  readonly #byActor = new Map<string, number>(); // groups, since one had variance
  readonly #over = new AbortController();
  #groups = 0;
  #reward = 0; // sum of the groups' means

  /**
   * @param limit groups; 0: never.
   * @param live the names of the actors that are alive.
   */
  constructor(limit: number, live: () => readonly string[] = () => []) {
    this.#limit = limit;
    this.#live = live;
  }

  /** Aborts when the limit is reached. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** The groups so far, since one had variance. */
  get noSignalStreak(): NoSignalStreak {
    return { groups: this.#groups, reward: this.#reward / Math.max(1, this.#groups) };
  }

  /** A group without variance was skipped. */
  skipped({ group: { actor }, scores }: ScoredGroup): void {
    if (this.#over.signal.aborted) return; // what is told is what ended it
    this.#seen.add(actor);
    this.#byActor.set(actor, (this.#byActor.get(actor) ?? 0) + 1);
    this.#groups += 1;
    this.#reward += scores.reduce((sum, { reward }) => sum + reward, 0) / scores.length;
    streak.set(this.#groups);
    if (this.#limit > 0 && this.#isEnough()) this.#over.abort();
  }

  /** A group has variance. */
  admitted({ group: { actor } }: ScoredGroup): void {
    if (this.#over.signal.aborted) return;
    this.#seen.add(actor);
    this.#byActor.clear();
    this.#groups = 0;
    this.#reward = 0;
    streak.set(0);
  }

  #isEnough(): boolean {
    const groups = this.#groups;
    if (groups < this.#limit || groups >= patience * this.#limit) return groups >= this.#limit;
    const [[first, most]] = [...this.#byActor].toSorted(([, a], [, b]) => b - a) as [
      [string, number],
    ];
    const hasOthers = this.#live().some((actor) => actor !== first && this.#seen.has(actor));
    const others = groups - most;
    return !hasOthers || others + Math.min(most, others) >= this.#limit;
  }
}
