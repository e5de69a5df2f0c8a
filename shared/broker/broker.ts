import { setTimeout as sleep } from 'node:timers/promises';
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
import { followConnection } from './connection-watch.js';
import { DeadLetters } from './dead-letters.js';
import { EventLog } from './event-log.js';
import { isWithoutJetStream } from './failures.js';
import { KeyValue } from './key-value.js';
import type { Leadership, LeaseTiming } from './leadership.js';
import { Ledger } from './ledger.js';
import { ask, askFor, isConnected, type Link } from './link.js';
import { nameToken, runConfigKey, type RunNames, type Source } from './names.js';
import { ObjectBucket } from './object-bucket.js';
import { pollsOf, Passage } from './passage.js';
import { PolicyStore } from './policy-store.js';
import { Uploads } from './uploads.js';
import { publish, traceHeaders, type Receipt } from './publish.js';
import { TicketQueue } from './ticket-queue.js';
import type { RunLimits } from './run-layout.js';
import { RunStreams } from './run-streams.js';
import { deleteStored, type StoredSize, storedSize } from './stored-run.js';
import { lastSequence } from './tail.js';

/** One process's connection to the streams, buckets and consumers of its run in NATS. Created by `connectBroker`. */
export class Broker implements AsyncDisposable {
  readonly names: RunNames;
  readonly policy: PolicyStore;
  readonly ledger: Ledger;
  readonly actors: ActorLeases;
  readonly events: EventLog;
  readonly deadLetters: DeadLetters;
  readonly tickets: TicketQueue;
  /** For the other files of this folder and for the run's configuration. */
  readonly link: Link;
  readonly bodies: ObjectBucket;
  readonly uploads: Uploads;

  readonly #config: KeyValue;
  readonly #streams: RunStreams;

  /** @param actor the actor's name, if this connection is an actor's. */
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
    this.tickets = new TicketQueue(link, this);
    this.#streams = new RunStreams(link, this.bodies, ackWaitMs);
    followConnection(link, () => {
      this.#streams.restore();
    });
  }

  get run(): string {
    return this.names.run;
  }

  /** Whether the connection is up now; after an outage it reconnects by itself. */
  get isConnected(): boolean {
    return isConnected(this.link);
  }

  /** How often the run was restored after a reconnect, since the server may have lost data. */
  get restorations(): number {
    return this.#streams.restorations;
  }

  /** Whether the server offers JetStream; undefined if it does not answer. */
  async offersJetStream(): Promise<boolean | undefined> {
    try {
      await this.link.jsm.getAccountInfo();
      return true;
    } catch (caught) {
      return isWithoutJetStream(caught) ? false : undefined;
    }
  }

  /** Why the server cannot be used now: it is disconnected, out of storage, or does not answer. */
  get trouble(): string | undefined {
    return this.isConnected ? this.link.outages.hindrance : 'NATS is disconnected';
  }

  /**
   * Creates the run's streams, consumers and buckets, or adapts them to other limits; only the learner that leads
   * calls it. Runs again after every reconnect, in case the server lost its storage. It also starts the periodic
   * queue repair and the sweep of unused bodies.
   *
   * @throws {UserError} if the server cannot give a setting that was asked for.
   */
  ensureRun(limits: RunLimits): Promise<void> {
    return this.#streams.ensure(limits);
  }

  /**
   * Publishes a message and resolves when JetStream has stored it. Retries while the stream is full or the
   * server is unreachable, and logs that it waits.
   *
   * @param options.trace `traceparent` of the span that caused the message; sent as a header.
   * @param options.msgId a message published again with the same id within an hour is stored once.
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

  /**
   * Waits until no other learner leads, then takes the lead and prepares the run: afterwards nothing that a former leader
   * sends changes the ledger or the history. Before that it only creates the ledger, if there is none: the queues have the
   * size that the leader needs, and this learner may have other settings.
   *
   * @param holder name of this learner; the same name takes over at once, as a restarted pod should.
   * @throws {UserError} as `ensureRun`.
   */
  async lead(
    holder: string,
    limits: RunLimits,
    signal: AbortSignal,
    timing?: LeaseTiming,
  ): Promise<Leadership> {
    await this.#streams.ensureLedger(limits);
    const leadership = await this.ledger.lead(holder, signal, timing);
    this.#streams.leads(leadership);
    try {
      await this.ensureRun(limits);
      await this.events.lead(holder);
      return leadership;
    } catch (caught) {
      await leadership[Symbol.asyncDispose]();
      throw caught;
    }
  }

  /**
   * Deletes and recreates a durable consumer, so that everything unacknowledged is redelivered at once. The
   * learner resets its consumers of scored groups before it consumes.
   */
  resetConsumer(source: Source): Promise<void> {
    return this.#streams.resetConsumer(source);
  }

  /** Deletes every message of a queue, including those being processed. */
  async clearQueue(source: Source): Promise<void> {
    const { stream, filter } = this.names.consumer(source);
    await ask(this.link, `clear ${filter}`, () => this.link.jsm.streams.purge(stream, { filter }));
  }

  /** Returns the number and age of the messages in each queue, and how many are unacknowledged. */
  backlog(): Promise<Backlog> {
    return readBacklog(this.link);
  }

  /**
   * Starts following the tickets that have already left their queue.
   *
   * @param unacked returns how many scored groups of the split have been received but not acknowledged.
   */
  pass(split: Split, unacked: () => number): Passage {
    return new Passage(pollsOf(this.link, split), unacked);
  }

  /** How many tickets the run has ever published, including finished ones. */
  ticketsSoFar(): Promise<number> {
    return lastSequence(this.link, this.names.streams.tickets);
  }

  /** Reads the newest scored group of training, unless it is `seen`, without affecting its delivery. */
  newestScored(seen = 0): Promise<NewestScored | undefined> {
    return newestScored(this.link, this.bodies, seen);
  }

  /** Finds actors that have used up their share of a stream. */
  fullShares(): Promise<FullShare[]> {
    return fullShares(this.link);
  }

  /** How many messages each queue holds, including leased and unacknowledged ones. */
  async depths(): Promise<Record<keyof Backlog['streams'], number>> {
    const { tickets, rollouts, scored, dead } = (await this.backlog()).streams;
    return {
      tickets: tickets.messages,
      rollouts: rollouts.messages,
      scored: scored.messages,
      dead: dead.messages,
    };
  }

  /** Whether this run exists on the server. */
  async isThere(): Promise<boolean> {
    const { streams } = this.names;
    const info = await askFor(this.link, `find run ${this.run}`, () =>
      this.link.jsm.streams.info(streams.dead),
    );
    return info !== undefined;
  }

  /** What the server stores for this run. */
  storedSize(): Promise<StoredSize> {
    return storedSize(this.link);
  }

  /** Deletes everything that the server stores for this run; needs the rights of an operator. */
  async deleteRun(): Promise<void> {
    this.#streams.forget();
    await deleteStored(this.link);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { connection, log } = this.link;
    this.#streams.forget();
    if (connection.isClosed()) return;
    try {
      // Sends buffered messages, if there is a server to send them to.
      const drained = this.isConnected ? connection.drain() : Promise.resolve();
      await Promise.race([drained, sleep(2_000, undefined, { ref: false })]);
    } catch (caught) {
      log.warn({ reason: errorText(caught) }, 'connection not drained');
    }
    await connection.close();
  }

  /** Maximum size of a body in the object store: it is a group, or was one before it was dead-lettered. */
  async #maxBodyBytes(): Promise<number> {
    const config = await this.#config.get(GroupSizes, runConfigKey);
    return largestGroupBytes(config?.value ?? nothingSampled);
  }
}

/** Used until the run has a configuration. */
const nothingSampled = { groupSize: 0, sampling: { maxTokens: 0 } };
