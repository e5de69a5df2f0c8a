import { Gauge } from 'prom-client';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';

const streak = new Gauge({
  name: 'rl_zero_variance_streak_groups',
  help: 'Groups skipped in a row for having no variance; --stop-zero-variance of them end the run.',
});

/** Groups in a row of which nothing can be learnt, since all rollouts of each earned the same. */
export interface Drought {
  readonly groups: number;
  readonly reward: number; // mean of their rollouts
}

/**
 * Notices when no group has variance any more: then no step comes that could end the run or be judged.
 * A policy that always says the same thing gets there, one that solves everything, and one that solves nothing.
 */
export class DroughtWatch {
  readonly #limit: number;
  readonly #over = new AbortController();
  #groups = 0;
  #reward = 0; // sum of the groups' means

  /** @param limit groups; 0: never. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Aborts when the limit is reached. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** The groups so far, since one had variance. */
  get drought(): Drought {
    return { groups: this.#groups, reward: this.#reward / Math.max(1, this.#groups) };
  }

  /** A group without variance was skipped. */
  skipped({ scores }: ScoredGroup): void {
    if (this.#over.signal.aborted) return; // what is told is what ended it
    this.#groups += 1;
    this.#reward += scores.reduce((sum, { reward }) => sum + reward, 0) / scores.length;
    streak.set(this.#groups);
    if (this.#groups === this.#limit) this.#over.abort();
  }

  /** A group has variance. */
  admitted(): void {
    if (this.#over.signal.aborted) return;
    this.#groups = 0;
    this.#reward = 0;
    streak.set(0);
  }
}
