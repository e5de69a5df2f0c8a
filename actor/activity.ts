import { Counter, Gauge } from 'prom-client';

/** What a leased ticket is doing. A ticket that waits for the sampler's turn is in none of these. */
export type Stage = 'policy' | 'sampling' | 'publish';

/** Why nothing is sampled: no ticket to lease, no policy new enough, or nowhere to put the result. */
export type IdleCause = 'ticket' | 'policy' | 'publish';

/**
 * Why the actor samples nothing now, or undefined while it samples. What stands furthest down the
 * stream is the cause: a full rollout stream explains missing progress better than a missing policy.
 */
export function idleCause(counts: Readonly<Record<Stage, number>>): IdleCause | undefined {
  if (counts.sampling > 0) return undefined;
  if (counts.publish > 0) return 'publish';
  return counts.policy > 0 ? 'policy' : 'ticket';
}

/** Keeps account of what the actor's tickets are doing and of the time in which none is sampled. */
export class Activity {
  readonly #counts: Record<Stage, number> = { policy: 0, sampling: 0, publish: 0 };
  #since: number;

  /** @param now a steady clock, in ms. */
  constructor(
    private readonly now: () => number,
    private readonly onIdle: (cause: IdleCause, seconds: number) => void,
  ) {
    this.#since = now();
  }

  /** Enters a stage until the result is disposed of. */
  enter(stage: Stage): Disposable {
    this.settle();
    this.#counts[stage]++;
    return {
      [Symbol.dispose]: () => {
        this.settle();
        this.#counts[stage]--;
      },
    };
  }

  /** Accounts for the time up to now; what happens after belongs to the new state. */
  settle(): void {
    const until = this.now();
    const cause = idleCause(this.#counts);
    if (cause !== undefined) this.onIdle(cause, (until - this.#since) / 1_000);
    this.#since = until;
  }

  get sampling(): number {
    return this.#counts.sampling;
  }
}

/** The activity of this process, exported as metrics. */
export function measuredActivity(): Activity {
  const idleSeconds = new Counter({
    name: 'rl_actor_idle_seconds_total',
    help: 'Time in which this actor sampled nothing, by what it waited for.',
    labelNames: ['cause'],
    collect: () => {
      activity.settle(); // also a wait that has not ended yet
    },
  });
  const activity = new Activity(
    () => performance.now(),
    (cause, seconds) => {
      idleSeconds.inc({ cause }, seconds);
    },
  );
  new Gauge({
    name: 'rl_actor_inflight',
    help: 'Groups that this actor samples at the moment.',
    collect() {
      this.set(activity.sampling);
    },
  });
  return activity;
}
