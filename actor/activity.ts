import { Counter, Gauge } from 'prom-client';
import { IdleTime } from '../shared/base/idle-time.js';
import type { GroupLimit } from './group-limit.js';

/** The stage of a leased ticket. A ticket that waits for the sampler is in none of these. */
export type Stage = 'policy' | 'sampling' | 'publish';

/** The reason why nothing is sampled: no ticket to lease, no policy new enough, or a full result stream. */
export type IdleCause = (typeof idleCauses)[number];

const idleCauses = ['ticket', 'policy', 'publish'] as const;

/**
 * The reason why the actor samples nothing now; undefined while it samples. The stage furthest
 * downstream is the cause: a full rollout stream explains missing progress better than a missing policy.
 */
export function idleCause(counts: Readonly<Record<Stage, number>>): IdleCause | undefined {
  if (counts.sampling > 0) return undefined;
  if (counts.publish > 0) return 'publish';
  return counts.policy > 0 ? 'policy' : 'ticket';
}

/** Counts the actor's tickets by stage and the time in which none is sampled. */
export class Activity {
  readonly #counts: Record<Stage, number> = { policy: 0, sampling: 0, publish: 0 };
  readonly #idle: IdleTime<IdleCause>;

  /** @param now a steady clock, in ms. */
  constructor(now: () => number, onIdle: (cause: IdleCause, seconds: number) => void) {
    this.#idle = new IdleTime({ ticket: 0, policy: 0, publish: 0 }, () => now() / 1_000, onIdle);
    this.#idle.idleFor(idleCause(this.#counts));
  }

  /** Counts a ticket in a stage until the result is disposed of. */
  enter(stage: Stage): Disposable {
    this.#count(stage, 1);
    return {
      [Symbol.dispose]: () => {
        this.#count(stage, -1);
      },
    };
  }

  /** Adds the idle time up to now to the counters. */
  settle(): void {
    this.#idle.settle();
  }

  /** Seconds so far without sampling, by cause. */
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
  collect: () => measured?.settle(), // includes a wait that has not ended yet
});
const inFlight = new Gauge({
  name: 'rl_actor_inflight',
  help: 'Groups that this actor is sampling now.',
  collect: () => {
    inFlight.set(measured?.sampling ?? 0);
  },
});
const limit = new Gauge({
  name: 'rl_actor_limit',
  help: 'Groups that this actor may sample at once now.',
  collect: () => {
    limit.set(measuredLimit?.now ?? 0);
  },
});
let measured: Activity | undefined;
let measuredLimit: GroupLimit | undefined;

/**
 * The activity of this process, which is exported as metrics.
 *
 * @param limit of the groups that it samples at once.
 */
export function measuredActivity(limit: GroupLimit): Activity {
  measuredLimit = limit;
  // A cause that an actor never waits for counts as 0 in the mean over all actors.
  for (const cause of idleCauses) idleSeconds.inc({ cause }, 0);
  measured = new Activity(
    () => performance.now(),
    (cause, seconds) => {
      idleSeconds.inc({ cause }, seconds);
    },
  );
  return measured;
}
