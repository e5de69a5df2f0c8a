import { Gauge } from 'prom-client';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';

const streak = new Gauge({
  name: 'rl_zero_variance_streak_groups',
  help: 'Groups skipped in a row for having no variance; --stop-zero-variance of them end the run.',
});

/** Groups in a row that train nothing, since all rollouts of each earned the same reward. */
export interface NoSignalStreak {
  readonly groups: number;
  readonly reward: number; // mean of their rollouts
}

/** The multiple of the limit that ends the run even if one actor answers nearly all tickets. */
const patience = 10;

/**
 * Detects that groups no longer have variance: then no step is made that could end the run or be judged.
 * This happens to a policy that repeats one answer, solves everything or solves nothing.
 *
 * An actor that only repeats one answer finishes tickets at once, and can answer a thousand before another
 * actor answers any. So while other actors that have answered are alive, the groups of the actor with the
 * most groups count at most as much as those of all others together.
 */
export class NoSignalWatch {
  readonly #limit: number;
  readonly #live: () => readonly string[];
  readonly #seen = new Set<string>(); // actors that have answered, with variance or without
  readonly #byActor = new Map<string, number>(); // groups since one had variance
  readonly #over = new AbortController();
  #groups = 0;
  #reward = 0; // sum of the groups' means

  /**
   * @param limit in groups; 0 disables the watch.
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

  /** The groups since one had variance. */
  get streak(): NoSignalStreak {
    return { groups: this.#groups, reward: this.#reward / Math.max(1, this.#groups) };
  }

  /** Counts a group that was skipped for having no variance. */
  skipped({ group: { actor }, scores }: ScoredGroup): void {
    if (this.#over.signal.aborted) return; // the streak that ended the run stays as it was
    this.#seen.add(actor);
    this.#byActor.set(actor, (this.#byActor.get(actor) ?? 0) + 1);
    this.#groups += 1;
    this.#reward += scores.reduce((sum, { reward }) => sum + reward, 0) / scores.length;
    streak.set(this.#groups);
    if (this.#limit > 0 && this.#isEnough()) this.#over.abort();
  }

  /** Resets the streak: a group has variance. */
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
