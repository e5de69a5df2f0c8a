import { errorText } from '../base/errors.js';
import { deleteConsumer, ensureConsumer, ensureStream } from './ensure.js';
import type { Leadership } from './leadership.js';
import { isConnected, type Link } from './link.js';
import type { Source } from './names.js';
import type { ObjectBucket } from './object-bucket.js';
import { QueueRepair, repairEveryMs, skipHiddenNumbers } from './queue-repair.js';
import {
  consumerSettings,
  countsDeliveries,
  type RunLimits,
  streamSettings,
  streamsThatDelete,
} from './run-layout.js';
import { Sweep, sweepEveryMs } from './sweep.js';
import { uploadChunkBytes } from './uploads.js';

/** Creates what a run needs at the server, and keeps it there in order: only the learner that leads uses all of it. */
export class RunStreams {
  /** How often the run was restored after a reconnect, since the server may have lost data. */
  restorations = 0;
  readonly #queueRepair: QueueRepair;
  readonly #sweep: Sweep;
  #repairs: NodeJS.Timeout | undefined;
  #sweeps: NodeJS.Timeout | undefined;
  #isSweeping = false;
  #restoring = Promise.resolve();
  #limits: RunLimits | undefined; // once the run is prepared
  #prepare: (() => Promise<void>) | undefined; // what this process has prepared
  #leadership: Leadership | undefined;

  constructor(
    private readonly link: Link,
    bodies: ObjectBucket,
    private readonly ackWaitMs: Partial<Readonly<Record<Source, number>>>,
  ) {
    this.#queueRepair = new QueueRepair(link, (source) => this.resetConsumer(source));
    this.#sweep = new Sweep(link, bodies);
  }

  /** @see Broker.ensureRun */
  async ensure(limits: RunLimits): Promise<void> {
    const { link } = this;
    this.#limits = limits;
    this.#prepare = () => this.ensure(limits);
    const streams = streamSettings(link.names, limits, uploadChunkBytes(link));
    // Sequentially: nats-server 2.9.10 has panicked in its API while a run was being set up.
    for (const settings of streams) await ensureStream(link, settings);
    const { emptied, kept } = streamsThatDelete(link.names);
    for (const stream of emptied) await skipHiddenNumbers(link, stream, false);
    for (const stream of kept) await skipHiddenNumbers(link, stream, true);
    for (const source of sources) await this.#ensureConsumer(source, limits);
    this.#repairs ??= setInterval(() => void this.#repairQueues(), repairEveryMs).unref();
    this.#sweeps ??= setInterval(() => void this.#sweepOnce(), sweepEveryMs).unref();
  }

  /** Creates the stream of the ledger, which has the leader's lease, unless it is there. */
  async ensureLedger(limits: RunLimits): Promise<void> {
    this.#prepare = () => this.ensureLedger(limits);
    const { names } = this.link;
    const name = `KV_${names.buckets.ledger}`;
    const settings = streamSettings(names, limits).find((stream) => stream.name === name)!;
    await ensureStream(this.link, settings, { onlyCreates: true });
    await skipHiddenNumbers(this.link, name, true);
  }

  /** From now on only the leader prepares the run again. */
  leads(leadership: Leadership): void {
    this.#leadership = leadership;
  }

  /** @see Broker.resetConsumer */
  async resetConsumer(source: Source): Promise<void> {
    if (this.#limits === undefined) throw new Error('resetConsumer before ensureRun');
    const { stream, durable } = this.link.names.consumer(source);
    while (!(await deleteConsumer(this.link, stream, durable))) {
      await this.#ensureConsumer(source, this.#limits); // to delete it with what is left of the last
    }
    await this.#ensureConsumer(source, this.#limits);
  }

  /**
   * Prepares again what this process has prepared, after a reconnect. One after another: nats-server 2.9.10 has panicked
   * in its API while a run was being set up twice. A learner that no longer leads prepares nothing: its settings may be
   * others than those of the one that leads.
   */
  restore(): void {
    this.#restoring = this.#restoring.then(async () => {
      if (this.#prepare === undefined) return;
      await this.#leadership?.confirm().catch(() => undefined); // if it is lost, its signal aborts
      if (this.#leadership?.signal.aborted === true) return;
      try {
        await this.#prepare();
        this.restorations += 1;
      } catch (caught) {
        this.link.log.error({ reason: errorText(caught) }, 'run not restored');
      }
    });
  }

  /** Keeps nothing in order any more: the run is deleted, or this process ends. */
  forget(): void {
    this.#limits = undefined;
    this.#prepare = undefined;
    this.#leadership = undefined;
    clearInterval(this.#repairs);
    clearInterval(this.#sweeps);
    this.#repairs = undefined;
    this.#sweeps = undefined;
  }

  async #ensureConsumer(source: Source, limits: RunLimits): Promise<void> {
    const { names } = this.link;
    const settings = consumerSettings(names, source, limits, this.ackWaitMs[source]);
    await ensureConsumer(this.link, names.consumer(source).stream, settings);
  }

  async #repairQueues(): Promise<void> {
    if (!isConnected(this.link)) return;
    try {
      await this.#queueRepair.poll();
    } catch (caught) {
      this.link.log.debug({ reason: errorText(caught) }, 'queue repair failed');
    }
  }

  async #sweepOnce(): Promise<void> {
    if (!isConnected(this.link) || this.#isSweeping) return; // the last one may wait for a server that hangs
    this.#isSweeping = true;
    try {
      await this.#sweep.run();
    } catch (caught) {
      this.link.log.warn({ reason: errorText(caught) }, 'sweep of message bodies failed');
    } finally {
      this.#isSweeping = false;
    }
  }
}

const sources = Object.keys(countsDeliveries) as Source[];
