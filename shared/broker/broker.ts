import { setTimeout as sleep } from 'node:timers/promises';
import { Events } from 'nats';
import type { z } from 'zod';
import { errorText } from '../base/errors.js';
import { encode } from '../wire/codec.js';
import { GroupSizes, largestGroupBytes } from '../wire/rollout-group.js';
import type { Split } from '../wire/ticket.js';
import { ActorLeases } from './actor-leases.js';
import {
  type Backlog,
  readBacklog,
  type FullShare,
  fullShares,
  newestScored,
  type NewestScored,
} from './backlog.js';
import { DeadLetters, type Original } from './dead-letters.js';
import { ensureConsumer, ensureStream } from './ensure.js';
import { EventLog } from './event-log.js';
import { repairEveryMs, QueueRepair, skipHiddenNumbers } from './queue-repair.js';
import { KeyValue } from './key-value.js';
import type { Leadership, LeaseTiming } from './leadership.js';
import { Ledger } from './ledger.js';
import { ask, askFor, type Link } from './link.js';
import { nameToken, runConfigKey, type RunNames, type Source } from './names.js';
import { ObjectBucket } from './object-bucket.js';
import { looksAt, Passage } from './passage.js';
import { PolicyStore } from './policy-store.js';
import { uploadChunkBytes, Uploads } from './uploads.js';
import { publish, traceHeaders, type Receipt } from './publish.js';
import { TicketQueue } from './queue-look.js';
import {
  consumerSettings,
  countsDeliveries,
  type RunLimits,
  streamSettings,
  streamsThatDelete,
} from './run-layout.js';
import { Sweep, sweepEveryMs } from './sweep.js';
import { lastSequence } from './tail.js';

/** One process's connection to what its run keeps in NATS. Made by `connectBroker`. */
export class Broker implements AsyncDisposable {
  readonly names: RunNames;
  readonly policy: PolicyStore;
  readonly ledger: Ledger;
  readonly actors: ActorLeases;
  readonly events: EventLog;
  readonly deadLetters: DeadLetters;
  readonly tickets: TicketQueue;
  /** For the other files of this folder and the run's configuration: the connection, and the bodies of large messages. */
  readonly link: Link;
  readonly bodies: ObjectBucket;
  readonly uploads: Uploads;

  readonly #config: KeyValue;
  readonly #ackWaitMs: Partial<Readonly<Record<Source, number>>>;
  readonly #queueRepair: QueueRepair;
  readonly #sweep: Sweep;
  #repairs: NodeJS.Timeout | undefined;
  #sweeps: NodeJS.Timeout | undefined;
  #limits: RunLimits | undefined;
  #restorations = 0;

  /** @param actor its name, where this is an actor's connection. */
  constructor(link: Link, ackWaitMs: Partial<Readonly<Record<Source, number>>>, actor?: string) {
    this.link = link;
    this.names = link.names;
    this.#config = new KeyValue(link, link.names.buckets.config);
    this.bodies = new ObjectBucket(link, link.names.objects.bodies, () => this.#maxBodyBytes());
    this.uploads = new Uploads(link, () => this.#maxBodyBytes());
    this.policy = new PolicyStore(link);
    this.ledger = new Ledger(link);
    this.actors = new ActorLeases(link);
    this.events = new EventLog(link, this);
    this.deadLetters = new DeadLetters(
      link,
      this,
      actor === undefined ? undefined : nameToken(actor),
    );
    this.tickets = new TicketQueue(link);
    this.#ackWaitMs = ackWaitMs;
    this.#queueRepair = new QueueRepair(link, (source) => this.resetConsumer(source));
    this.#sweep = new Sweep(link, this.bodies);
    void this.#followConnection();
  }

  get run(): string {
    return this.names.run;
  }

  /** Whether the server is there now; after an outage the connection comes back by itself. */
  get isConnected(): boolean {
    return !this.link.outages.isDown && !this.link.connection.isClosed();
  }

  /** How often the run was restored because the connection had come back: the server may have lost something. */
  get restorations(): number {
    return this.#restorations;
  }

  /** Why the server is of no use now: it is away, has no room left, or does not answer. */
  get trouble(): string | undefined {
    return this.isConnected ? this.link.outages.hindrance : 'NATS is disconnected';
  }

  /**
   * Creates the run's streams, consumers and buckets, or adapts them to other limits; the learner's
   * task alone. Repeated whenever the connection comes back, in case the server lost its storage; and
   * from now on it is looked after what a killed server keeps twice, and what nobody needs any more is swept.
   *
   * @throws {UserError} if the server cannot give a setting that was asked for.
   */
  async ensureRun(limits: RunLimits): Promise<void> {
    this.#limits = limits;
    const streams = streamSettings(this.names, limits, uploadChunkBytes(this.link));
    // One after the other: nats-server 2.9.10 was seen to panic in its API while a run was set up.
    for (const settings of streams) await ensureStream(this.link, settings);
    const { emptied, kept } = streamsThatDelete(this.names);
    for (const stream of emptied) await skipHiddenNumbers(this.link, stream, false);
    for (const stream of kept) await skipHiddenNumbers(this.link, stream, true);
    for (const source of sources) await this.#ensureConsumer(source, limits);
    this.#repairs ??= setInterval(() => void this.#repairQueues(), repairEveryMs).unref();
    this.#sweeps ??= setInterval(() => void this.#sweepOnce(), sweepEveryMs).unref();
  }

  /**
   * Publishes a message and returns when JetStream has stored it. While its stream is full or the
   * server away it waits and tries again, saying so in the log.
   *
   * @param options.trace `traceparent` of the span that led to it, which travels as a header.
   * @param options.msgId what is published again with the same id within the hour is stored once.
   * @throws {WireError} if the message breaks its schema; the signal's reason, once it aborts.
   */
  async publish<S extends z.ZodType>(
    subject: string,
    schema: S,
    message: z.output<S>,
    options: { msgId: string; trace?: string | undefined; signal: AbortSignal },
  ): Promise<Receipt> {
    const outgoing = {
      subject,
      data: encode(schema, message),
      msgId: options.msgId,
      headers: traceHeaders(options.trace),
    };
    return publish(this.link, this, outgoing, options.signal);
  }

  /** Stores a message that cannot be processed, with the reason, the stage and its first subject. */
  async deadLetter(stage: string, reason: string, original: Original): Promise<void> {
    await this.deadLetters.store(stage, reason, original);
  }

  /**
   * Waits until no other learner leads, then leads: from now on nothing that a former leader sends
   * changes the ledger or the history.
   *
   * @param holder who this is; the same name takes over at once, as a restarted pod should.
   */
  async lead(holder: string, signal: AbortSignal, timing?: LeaseTiming): Promise<Leadership> {
    const leadership = await this.ledger.lead(holder, signal, timing);
    try {
      await this.events.lead(holder);
      return leadership;
    } catch (caught) {
      await leadership[Symbol.asyncDispose]();
      throw caught;
    }
  }

  /**
   * Drops a durable consumer and makes it anew, so that everything unacknowledged is delivered again
   * at once. The learner does this to the scored ones before it consumes.
   */
  async resetConsumer(source: Source): Promise<void> {
    if (this.#limits === undefined) throw new Error('resetConsumer before ensureRun');
    const { stream, durable } = this.names.consumer(source);
    await askFor(this.link, `drop consumer ${durable}`, () =>
      this.link.jsm.consumers.delete(stream, durable),
    );
    await this.#ensureConsumer(source, this.#limits);
  }

  /** Drops everything that waits in a queue, what is being worked on included. */
  async clearQueue(source: Source): Promise<void> {
    const { stream, filter } = this.names.consumer(source);
    await ask(this.link, `clear ${filter}`, () => this.link.jsm.streams.purge(stream, { filter }));
  }

  /** What waits in each queue, for how long, and in whose hands. */
  backlog(): Promise<Backlog> {
    return readBacklog(this.link);
  }

  /**
   * Begins to follow what came of the tickets that have left their queue by now.
   *
   * @param held how many scored groups of the split have been received and not acknowledged.
   */
  pass(split: Split, held: () => number): Passage {
    return new Passage(looksAt(this.link, split), held);
  }

  /** How many tickets were ever published in the run, those that are done with included. */
  ticketsSoFar(): Promise<number> {
    return lastSequence(this.link, this.names.streams.tickets);
  }

  /** The newest scored group of training that is not `seen`, only looked at. */
  newestScored(seen = 0): Promise<NewestScored | undefined> {
    return newestScored(this.link, this.bodies, seen);
  }

  /** Which actors have used up what one may have in a stream. */
  fullShares(): Promise<FullShare[]> {
    return fullShares(this.link);
  }

  /** How many messages each queue holds, leased and unacknowledged ones included. */
  async depths(): Promise<Record<keyof Backlog['streams'], number>> {
    const { tickets, rollouts, scored, dead } = (await this.backlog()).streams;
    return {
      tickets: tickets.messages,
      rollouts: rollouts.messages,
      scored: scored.messages,
      dead: dead.messages,
    };
  }

  /** Whether the server holds anything of this run. */
  async isThere(): Promise<boolean> {
    const { streams } = this.names;
    const info = await askFor(this.link, `look for ${this.run}`, () =>
      this.link.jsm.streams.info(streams.dead),
    );
    return info !== undefined;
  }

  /** Deletes everything that the server holds of this run. */
  async deleteRun(): Promise<void> {
    this.#limits = undefined;
    this.#stopLooking();
    const none = { trainTickets: 0, evalTickets: 0 };
    for (const { name } of streamSettings(this.names, none)) {
      await askFor(this.link, `delete stream ${name}`, () => this.link.jsm.streams.delete(name));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { connection, log } = this.link;
    this.#stopLooking();
    if (connection.isClosed()) return;
    try {
      // Sends what is buffered; without a server there is nowhere to send it.
      const drained = this.isConnected ? connection.drain() : Promise.resolve();
      await Promise.race([drained, sleep(2_000, undefined, { ref: false })]);
    } catch (caught) {
      log.warn({ reason: errorText(caught) }, 'could not drain the connection');
    }
    await connection.close();
  }

  /** Of a message that travels through the object store: it is a group, or was one until it was given up. */
  async #maxBodyBytes(): Promise<number> {
    const config = await this.#config.get(GroupSizes, runConfigKey);
    return largestGroupBytes(config?.value ?? nothingSampled);
  }

  async #ensureConsumer(source: Source, limits: RunLimits): Promise<void> {
    const settings = consumerSettings(this.names, source, limits, this.#ackWaitMs[source]);
    await ensureConsumer(this.link, this.names.consumer(source).stream, settings);
  }

  async #repairQueues(): Promise<void> {
    if (!this.isConnected) return;
    try {
      await this.#queueRepair.look();
    } catch (caught) {
      this.link.log.debug({ reason: errorText(caught) }, 'could not look into the queues');
    }
  }

  async #sweepOnce(): Promise<void> {
    if (!this.isConnected) return;
    try {
      await this.#sweep.look();
    } catch (caught) {
      this.link.log.warn({ reason: errorText(caught) }, 'could not sweep the bodies of messages');
    }
  }

  #stopLooking(): void {
    clearInterval(this.#repairs);
    clearInterval(this.#sweeps);
    this.#repairs = undefined;
    this.#sweeps = undefined;
  }

  async #followConnection(): Promise<void> {
    const { connection, log, outages } = this.link;
    for await (const { type, data } of connection.status()) {
      if (type === Events.Disconnect) {
        outages.begin();
        if (!connection.isDraining() && !connection.isClosed())
          log.warn('lost the connection to NATS');
      } else if (type === Events.Reconnect) {
        outages.end();
        log.info('connected to NATS again');
        void this.#restoreRun();
      } else if (type === Events.Error) {
        log.error({ data }, 'NATS complains');
      }
    }
  }

  async #restoreRun(): Promise<void> {
    if (this.#limits === undefined) return;
    try {
      await this.ensureRun(this.#limits);
      this.#restorations += 1;
    } catch (caught) {
      this.link.log.error({ reason: errorText(caught) }, 'could not restore the run');
    }
  }
}

/** Until there is a configuration. */
const nothingSampled = { groupSize: 0, sampling: { maxTokens: 0 } };

const sources = Object.keys(countsDeliveries) as Source[];
