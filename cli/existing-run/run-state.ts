import type { Backlog } from '../../shared/broker/backlog.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { DeadLetter } from '../../shared/broker/dead-letters.js';
import { UserError } from '../../shared/base/errors.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import type { ActorLease } from '../../shared/wire/actor-lease.js';
import type { LeaderLease } from '../../shared/wire/ledger.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { EventOf } from '../../shared/wire/run-event.js';

/** A run at one moment, as far as its NATS server knows it. */
export interface RunState {
  readonly run: string;
  readonly at: number; // ms since the epoch, of the snapshot
  readonly config: RunConfig | undefined; // none yet: the run is still being set up
  readonly leader: LeaderLease | undefined;
  readonly policy: PolicyManifest | undefined;
  readonly steps: readonly EventOf<'step'>[]; // the newest ones, oldest first
  readonly evaluation: EventOf<'eval'> | undefined; // the newest
  readonly lead: EventOf<'leader'> | undefined; // of the newest session that began
  readonly end: EventOf<'end'> | undefined; // of the newest session that ended
  readonly actors: readonly ActorLease[]; // seen within the last hour
  readonly backlog: Backlog;
  readonly newestDeadLetter: DeadLetter | undefined;
}

/** How many of the newest steps are read. */
const stepsBack = 20;

/**
 * Reads everything that a run keeps in NATS; an observer's key is enough.
 *
 * @throws {UserError} if the server holds nothing of the run.
 */
export async function readRunState(broker: Broker, signal: AbortSignal): Promise<RunState> {
  const { run } = broker;
  const at = Date.now();
  if (!(await broker.isThere())) throw new UserError(`the NATS server knows no run ${run}`);
  const backlog = await broker.backlog();
  const store = new RunConfigStore(broker);
  if (!(await store.isWritten())) {
    const unknown = {
      config: undefined,
      leader: undefined,
      policy: undefined,
      evaluation: undefined,
      lead: undefined,
      end: undefined,
      newestDeadLetter: undefined,
    };
    return { run, at, ...unknown, steps: [], actors: [], backlog };
  }
  const [config, leader, policy, steps, evaluation, lead, end, actors, newestDeadLetter] =
    await Promise.all([
      store.get(),
      broker.ledger.leader(),
      broker.policy.current(),
      broker.events.latest('step', stepsBack, signal),
      broker.events.newest('eval'),
      broker.events.newest('leader'),
      broker.events.newest('end'),
      broker.actors.list(),
      broker.deadLetters.newest(signal),
    ]);
  return {
    run,
    at,
    config,
    leader,
    policy,
    steps,
    evaluation,
    lead,
    end,
    actors,
    backlog,
    newestDeadLetter,
  };
}

/**
 * How many of the scored groups that the learner received are trained or dropped, and stay in the
 * queue until the next checkpoint. They are not backlog.
 *
 * @param inHand groups that are delivered and unacknowledged now.
 * @param metrics of the newest step, which may be older.
 */
export function awaitingOf(
  inHand: number,
  metrics: Readonly<Record<string, number>> | undefined,
): number {
  return Math.min(inHand, metrics?.['groups_awaiting_checkpoint'] ?? 0);
}
