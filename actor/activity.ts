import { Counter, Gauge } from 'prom-client';
import { IdleTime } from '../shared/base/idle-time.js';

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
  readonly #idle: IdleTime<IdleCause>;

  /** @param now a steady clock, in ms. */
  constructor(now: () => number, onIdle: (cause: IdleCause, seconds: number) => void) {
    this.#idle = new IdleTime({ ticket: 0, policy: 0, publish: 0 }, () => now() / 1_000, onIdle);
    this.#idle.idleFor(idleCause(this.#counts));
  }

  /** Enters a stage until the result is disposed of. */
  enter(stage: Stage): Disposable {
    this.#count(stage, 1);
    return {
      [Symbol.dispose]: () => {
        this.#count(stage, -1);
      },
    };
  }

  /** Accounts for the time up to now; what happens after belongs to the new state. */
  settle(): void {
    this.#idle.settle();
  }

  /** Seconds so far in which nothing was sampled. */
  get idleSeconds(): Readonly<Record<IdleCause, number>> {
    return this.#idle.seconds;
  }

  #count(stage: Stage, change: number): void {
    this.#counts[stage] += change;
    this.#idle.idleFor(idleCause(this.#counts));
  }

  get sampling(): number {
    return this.#counts.sampling;
  }
}

const idleSeconds = new Counter({
  name: 'rl_actor_idle_seconds_total',
  help: 'Time in which this actor sampled nothing, by what it waited for.',
  labelNames: ['cause'],
  collect: () => measured?.settle(), // also a wait that has not ended yet
});
const inFlight = new Gauge({
  name: 'rl_actor_inflight',
  help: 'Groups that this actor samples at the moment.',
  collect: () => {
    inFlight.set(measured?.sampling ?? 0);
  },
});
const limit = new Gauge({
  name: 'rl_actor_limit',
  help: 'Groups that this actor can sample at once.',
});
let measured: Activity | undefined;

/**
 * The activity of this process, exported as metrics.
 *
 * @param concurrency groups that it can sample at once.
 */
export function measuredActivity(concurrency: number): Activity {
  limit.set(concurrency);
  measured = new Activity(
    () => performance.now(),
    (cause, seconds) => {
      idleSeconds.inc({ cause }, seconds);
    },
  );
  return measured;
}
