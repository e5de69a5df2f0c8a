import { Checkpoint, LeaderLease, TicketKey } from '../wire/ledger.js';
import { TicketIds } from '../wire/ticket-ids.js';
import { KeyValue } from './key-value.js';
import { acquireLeadership, leaderKey, type Leadership, type LeaseTiming } from './leadership.js';
import type { Link } from './link.js';

/** The run's checkpoint in NATS, which records what the saved weights have consumed, and the lease of its leader. */
export class Ledger {
  readonly #link: Link;
  readonly #bucket: KeyValue;
  /** Revision of the checkpoint that this learner last wrote or took over. */
  #revision: number | undefined;
  #isRevisionKnown = false;

  constructor(link: Link) {
    this.#link = link;
    this.#bucket = new KeyValue(link, link.names.buckets.ledger);
  }

  async read(): Promise<Checkpoint | undefined> {
    return (await this.#bucket.get(Checkpoint, 'checkpoint'))?.value;
  }

  /** Returns the checkpoints that the ledger still has, newest first. */
  history(): Promise<Checkpoint[]> {
    return this.#bucket.history(Checkpoint, 'checkpoint');
  }

  /** Returns the leader lease; its holder may have died since. */
  async leader(): Promise<LeaderLease | undefined> {
    return (await this.#bucket.get(LeaderLease, leaderKey))?.value;
  }

  /** Returns the run's ticket ids; undefined until a learner has stored their key. */
  async ticketIds(): Promise<TicketIds | undefined> {
    const entry = await this.#bucket.get(TicketKey, 'tickets');
    return entry && new TicketIds(entry.value);
  }

  /** Returns the run's ticket ids, storing `key` as the run's key if the ledger has none. */
  async settleTicketIds(key: TicketKey): Promise<TicketIds> {
    for (;;) {
      const ids = await this.ticketIds();
      if (ids !== undefined) return ids;
      await this.#bucket.compareAndSet(TicketKey, 'tickets', key, undefined);
    }
  }

  /** Writes a checkpoint. @throws {Error} if another learner has written one since, which is now the run's. */
  async write(checkpoint: Checkpoint): Promise<void> {
    if (!this.#isRevisionKnown) await this.#takeOver();
    const revision = await this.#bucket.compareAndSet(
      Checkpoint,
      'checkpoint',
      checkpoint,
      this.#revision,
    );
    if (revision === undefined) {
      throw new Error(
        `another learner has written the ledger of run ${this.#link.names.run}; this one must stop and start from that checkpoint`,
      );
    }
    this.#revision = revision;
  }

  /**
   * Waits until no other learner leads, then takes the lead and renews the lease until it is disposed of.
   *
   * @param holder name of this learner; the same name takes over at once, as a restarted pod should.
   */
  async lead(holder: string, signal: AbortSignal, timing?: LeaseTiming): Promise<Leadership> {
    const leadership = await acquireLeadership(this.#link, this.#bucket, holder, signal, timing);
    await this.#takeOver();
    return leadership;
  }

  /** Rewrites the checkpoint unchanged: its new revision makes any write of a former leader fail. */
  async #takeOver(): Promise<void> {
    for (;;) {
      const entry = await this.#bucket.get(Checkpoint, 'checkpoint');
      const revision =
        entry &&
        (await this.#bucket.compareAndSet(Checkpoint, 'checkpoint', entry.value, entry.revision));
      if (entry !== undefined && revision === undefined) continue; // the former leader wrote in between
      this.#revision = revision;
      this.#isRevisionKnown = true;
      return;
    }
  }
}
