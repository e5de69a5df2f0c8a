import { Checkpoint, LeaderLease, TicketKey } from '../wire/ledger.js';
import { TicketIds } from '../wire/ticket-ids.js';
import { KeyValue } from './key-value.js';
import { acquireLeadership, leaderKey, type Leadership, type LeaseTiming } from './leadership.js';
import type { Link } from './link.js';

/** What the saved weights have consumed, and which learner may add to it. */
export class Ledger {
  readonly #link: Link;
  readonly #bucket: KeyValue;
  /** Of the checkpoint that this learner wrote or took over last. */
  #revision: number | undefined;
  #isRevisionKnown = false;

  constructor(link: Link) {
    this.#link = link;
    this.#bucket = new KeyValue(link, link.names.buckets.ledger);
  }

  async read(): Promise<Checkpoint | undefined> {
    return (await this.#bucket.get(Checkpoint, 'checkpoint'))?.value;
  }

  /** The newest checkpoints that the ledger still has, the newest first. */
  history(): Promise<Checkpoint[]> {
    return this.#bucket.history(Checkpoint, 'checkpoint');
  }

  /** Who may train, as the lease says; it may be of a learner that has died since. */
  async leader(): Promise<LeaderLease | undefined> {
    return (await this.#bucket.get(LeaderLease, leaderKey))?.value;
  }

  /** The ids of the run's tickets; undefined before its first learner, or the first that keys them. */
  async ticketIds(): Promise<TicketIds | undefined> {
    const entry = await this.#bucket.get(TicketKey, 'tickets');
    return entry && new TicketIds(entry.value);
  }

  /** The same; where the ledger has no key, `key` is the run's from now on. */
  async settleTicketIds(key: TicketKey): Promise<TicketIds> {
    for (;;) {
      const ids = await this.ticketIds();
      if (ids !== undefined) return ids;
      await this.#bucket.compareAndSet(TicketKey, 'tickets', key, undefined);
    }
  }

  /** @throws {Error} if another learner has written since: its weights are the run's now. */
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
   * Waits until no other learner leads, then leads, renewing the lease until it is disposed of.
   *
   * @param holder who this is; the same name takes over at once, as a restarted pod should.
   */
  async lead(holder: string, signal: AbortSignal, timing?: LeaseTiming): Promise<Leadership> {
    const leadership = await acquireLeadership(this.#link, this.#bucket, holder, signal, timing);
    await this.#takeOver();
    return leadership;
  }

  /** Rewrites the checkpoint as it is: its new revision makes any write of a former leader fail. */
  async #takeOver(): Promise<void> {
    for (;;) {
      const entry = await this.#bucket.get(Checkpoint, 'checkpoint');
      const revision =
        entry &&
        (await this.#bucket.compareAndSet(Checkpoint, 'checkpoint', entry.value, entry.revision));
      if (entry !== undefined && revision === undefined) continue; // a last write came in between
      this.#revision = revision;
      this.#isRevisionKnown = true;
      return;
    }
  }
}
