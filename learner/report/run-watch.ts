import { Gauge } from 'prom-client';
import { errorText } from '../../shared/base/errors.js';
import { Allowance } from '../../shared/broker/allowance.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { ActorLease } from '../../shared/wire/actor-lease.js';

const streamDepth = new Gauge({
  name: 'rl_stream_depth',
  help: 'Messages in each queue of the run, leased and unacknowledged ones included.',
  labelNames: ['stream'],
});
const oldestAge = new Gauge({
  name: 'rl_oldest_age_seconds',
  help: 'Age of the oldest message in each queue of the run; 0 while it is empty.',
  labelNames: ['stream'],
});
const pending = new Gauge({
  name: 'rl_consumer_pending',
  help: 'Messages that each consumer of the run has not been given yet.',
  labelNames: ['consumer'],
});
const ackPending = new Gauge({
  name: 'rl_consumer_ack_pending',
  help: 'Messages that each consumer of the run was given and that are not settled yet.',
  labelNames: ['consumer'],
});
const liveActors = new Gauge({
  name: 'rl_actors',
  help: 'Actors whose lease was renewed within the last 10 seconds.',
});

const everyMs = 5_000;
const livenessMs = 10_000; // several renewals

/** Polls the state of the run: the messages in its queues and the state of its actors. */
export class RunWatch implements Disposable {
  #metrics: Readonly<Record<string, number>> = {};
  #live: readonly string[] = [];
  #polling: Promise<void> | undefined;
  readonly #timer: NodeJS.Timeout;

  constructor(
    private readonly broker: Pick<Broker, 'backlog' | 'actors'>,
    private readonly log: Logger,
  ) {
    this.#timer = setInterval(() => void this.poll(), everyMs);
  }

  /** The metrics of the last poll, by the names of `metrics.jsonl`. */
  get metrics(): Readonly<Record<string, number>> {
    return this.#metrics;
  }

  /** The names of the actors that were alive at the last poll. */
  get live(): readonly string[] {
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
      const live = leases.filter(({ lastSeenAt }) => Date.now() - lastSeenAt <= livenessMs);
      liveActors.set(live.length);
      this.#live = live.map(({ actor }) => actor);
      this.#metrics = { ...queueMetrics(backlog), ...actorMetrics(live) };
    } catch (caught) {
      this.log.debug({ reason: errorText(caught) }, 'run not polled');
    }
  }
}

type Backlog = Awaited<ReturnType<Broker['backlog']>>;

function queueMetrics({ streams, consumers }: Backlog): Record<string, number> {
  const metrics: Record<string, number> = {};
  for (const [stream, { messages, oldestAgeSeconds }] of Object.entries(streams)) {
    streamDepth.set({ stream }, messages);
    oldestAge.set({ stream }, oldestAgeSeconds);
    metrics[`stream_depth/${stream}`] = messages;
    metrics[`oldest_age_seconds/${stream}`] = oldestAgeSeconds;
  }
  for (const [consumer, state] of Object.entries(consumers)) {
    pending.set({ consumer }, state.pending);
    ackPending.set({ consumer }, state.ackPending);
    metrics[`consumer_pending/${consumer}`] = state.pending;
    metrics[`consumer_ack_pending/${consumer}`] = state.ackPending;
  }
  return metrics;
}

/** Sums over the live actors; each actor exports its own values in its own process. */
function actorMetrics(live: readonly ActorLease[]): Record<string, number> {
  const sum = (value: (lease: ActorLease) => number): number =>
    live.reduce((total, lease) => total + value(lease), 0);
  const drawn = live.flatMap(({ firstToken }) => firstToken ?? []);
  const newest = Math.max(...drawn.map(({ version }) => version));
  const delays = drawn.flatMap(({ version, seconds }) => (version === newest ? [seconds] : []));
  return {
    'actors/live': live.length,
    'actors/inflight': sum(({ inFlight }) => inFlight),
    'actors/limit': sum(({ limit }) => limit),
    'actors/idle_seconds/ticket': sum(({ idleSeconds }) => idleSeconds.ticket),
    'actors/idle_seconds/policy': sum(({ idleSeconds }) => idleSeconds.policy),
    'actors/idle_seconds/publish': sum(({ idleSeconds }) => idleSeconds.publish),
    // The slowest actor's delay for the newest version that any actor has drawn with.
    ...(delays.length === 0 ? {} : { publish_to_first_token_seconds: Math.max(...delays) }),
  };
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
