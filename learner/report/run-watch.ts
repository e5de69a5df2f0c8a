import { errorText } from '../../shared/base/errors.js';
import { Allowance } from '../../shared/broker/allowance.js';
import type { Backlog } from '../../shared/broker/backlog.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { type ActorLease, actorLivenessMs } from '../../shared/wire/actor-lease.js';
import { StatTable } from './stat-table.js';

const streamStats = new StatTable<Backlog['streams']['tickets']>([
  {
    jsonl: 'stream_depth/{stream}',
    prometheus: 'rl_stream_depth',
    help: 'Messages in each queue of the run, leased and unacknowledged ones included.',
    of: ({ messages }) => messages,
  },
  {
    jsonl: 'oldest_age_seconds/{stream}',
    prometheus: 'rl_oldest_age_seconds',
    help: 'Age of the oldest message in each queue of the run; 0 while it is empty.',
    of: ({ oldestAgeSeconds }) => oldestAgeSeconds,
  },
]);

const consumerStats = new StatTable<Backlog['consumers']['rollouts']>([
  {
    jsonl: 'consumer_pending/{consumer}',
    prometheus: 'rl_consumer_pending',
    help: 'Messages of each consumer of the run that are not delivered yet.',
    of: ({ pending }) => pending,
  },
  {
    jsonl: 'consumer_ack_pending/{consumer}',
    prometheus: 'rl_consumer_ack_pending',
    help: 'Messages of each consumer of the run that are delivered and not settled yet.',
    of: ({ ackPending }) => ackPending,
  },
]);

/** Sums over the live actors; each actor exports its own values in its own process. */
const actorStats = new StatTable<readonly ActorLease[]>([
  {
    jsonl: 'actors/live',
    prometheus: 'rl_actors',
    help: 'Actors whose lease was renewed within the last 10 seconds.',
    of: ({ length }) => length,
  },
  {
    jsonl: 'actors/refusing',
    prometheus: 'rl_actors_refusing',
    help: 'Live actors that do not sample, because they do not reproduce the canary of the newest version.',
    of: sumOf(({ refused }) => (refused === undefined ? 0 : 1)),
  },
  { jsonl: 'actors/inflight', of: sumOf(({ inFlight }) => inFlight) },
  { jsonl: 'actors/limit', of: sumOf(({ limit }) => limit) },
  { jsonl: 'actors/idle_seconds/ticket', of: sumOf(({ idleSeconds }) => idleSeconds.ticket) },
  { jsonl: 'actors/idle_seconds/policy', of: sumOf(({ idleSeconds }) => idleSeconds.policy) },
  { jsonl: 'actors/idle_seconds/publish', of: sumOf(({ idleSeconds }) => idleSeconds.publish) },
  { jsonl: 'publish_to_first_token_seconds', of: firstTokenSeconds },
]);

const everyMs = 5_000;

/** When an actor's lease was renewed. */
interface Renewal {
  readonly actor: string;
  readonly lastSeenAt: number; // by the actor's clock
  readonly noticedAt: number; // by the steady clock of this process
}

/** Polls the state of the run: the messages in its queues and the state of its actors. */
export class RunWatch implements Disposable {
  #metrics: Readonly<Record<string, number>> = {};
  #live: readonly ActorLease[] = [];
  #renewals: ReadonlyMap<string, Renewal> = new Map(); // by actor
  #polling: Promise<void> | undefined;
  readonly #timer: NodeJS.Timeout;

  constructor(
    private readonly broker: Pick<Broker, 'backlog' | 'actors'>,
    private readonly log: Logger,
    private readonly now = () => performance.now(), // ms of a steady clock
  ) {
    this.#timer = setInterval(() => void this.poll(), everyMs);
  }

  /** The metrics of the last poll, by the names of `metrics.jsonl`. */
  get metrics(): Readonly<Record<string, number>> {
    return this.#metrics;
  }

  /** The names of the actors that were alive at the last poll. */
  get live(): readonly string[] {
    return this.#live.map(({ actor }) => actor);
  }

  /** Their leases. */
  get leases(): readonly ActorLease[] {
    return this.#live;
  }

  /** Polls once. Only one poll runs at a time, so that polls do not pile up while NATS is away. */
  poll(): Promise<void> {
    this.#polling ??= this.#poll().finally(() => {
      this.#polling = undefined;
    });
    return this.#polling;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  async #poll(): Promise<void> {
    try {
      const [backlog, leases] = await Promise.all([
        this.broker.backlog(),
        this.broker.actors.list(),
      ]);
      const now = this.now();
      const renewals = leases.map((lease) => this.#renewalOf(lease, now));
      this.#renewals = new Map(renewals.map((renewal) => [renewal.actor, renewal]));
      const live = leases.filter((_, i) => now - renewals[i]!.noticedAt <= actorLivenessMs);
      this.#live = live;
      this.#metrics = { ...queueMetrics(backlog), ...actorStats.record(live) };
    } catch (caught) {
      this.log.debug({ reason: errorText(caught) }, 'run not polled');
    }
  }

  /**
   * A lease lives by the clock of this process, since that of another machine may be wrong. Only the first look at a
   * lease goes by the time that it names: the actor may be long gone.
   */
  #renewalOf({ actor, lastSeenAt }: ActorLease, now: number): Renewal {
    const before = this.#renewals.get(actor);
    if (before?.lastSeenAt === lastSeenAt) return before;
    const claimedAge = before === undefined ? Math.max(0, Date.now() - lastSeenAt) : 0;
    const noticedAt = now - claimedAge;
    return { actor, lastSeenAt, noticedAt };
  }
}

function queueMetrics({ streams, consumers }: Backlog): Record<string, number> {
  const metrics: Record<string, number> = {};
  for (const [stream, state] of Object.entries(streams)) {
    Object.assign(metrics, streamStats.record(state, { stream }));
  }
  for (const [consumer, state] of Object.entries(consumers)) {
    Object.assign(metrics, consumerStats.record(state, { consumer }));
  }
  return metrics;
}

function sumOf(value: (lease: ActorLease) => number) {
  return (live: readonly ActorLease[]) => live.reduce((total, lease) => total + value(lease), 0);
}

/** The slowest actor's delay for the newest version that any actor has drawn with. */
function firstTokenSeconds(live: readonly ActorLease[]): number | undefined {
  const drawn = live.flatMap(({ firstToken }) => firstToken ?? []);
  const newest = Math.max(...drawn.map(({ version }) => version));
  const delays = drawn.flatMap(({ version, seconds }) => (version === newest ? [seconds] : []));
  return delays.length === 0 ? undefined : Math.max(...delays);
}

const sharesEveryMs = 10_000;

/** Reports the actors that have used up their share of a stream, in the log and in the run's events. */
export class ShareWatch implements AsyncDisposable {
  readonly #timer: NodeJS.Timeout;
  readonly #reports = new Allowance({ atOnce: 1, perHour: 1 });
  #polling: Promise<void> | undefined;

  constructor(
    private readonly broker: Pick<Broker, 'fullShares' | 'events'>,
    private readonly log: Logger,
  ) {
    this.#timer = setInterval(() => void this.poll(), sharesEveryMs);
  }

  /**
   * Polls once; each actor is reported at most once an hour per stream. Only one poll runs at a time, so
   * that polls do not pile up while NATS is away.
   */
  poll(): Promise<void> {
    this.#polling ??= this.#poll().finally(() => {
      this.#polling = undefined;
    });
    return this.#polling;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#polling;
  }

  async #poll(): Promise<void> {
    try {
      for (const { stream, sender: actor, messages } of await this.broker.fullShares()) {
        if (!this.#reports.take(`${stream} ${actor}`)) continue;
        this.log.warn({ actor, stream, messages }, 'actor has used up its share of a stream');
        await this.broker.events.emit({
          v: 1,
          at: Date.now(),
          kind: 'share',
          actor,
          stream,
          messages,
        });
      }
    } catch (caught) {
      this.log.debug({ reason: errorText(caught) }, 'stream shares not polled');
    }
  }
}
