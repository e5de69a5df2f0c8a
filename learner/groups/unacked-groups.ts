import type { Lease } from '../../shared/broker/delivery.js';
import { StatTable } from '../report/stat-table.js';

const awaitingStats = new StatTable<number>([
  {
    jsonl: 'groups_awaiting_checkpoint',
    prometheus: 'rl_groups_awaiting_checkpoint',
    help: 'Groups that are trained or dropped; their messages stay in the queue of scored groups until a checkpoint.',
    of: (groups) => groups,
  },
]);

interface Held {
  readonly lease: Lease;
  readonly order: number | undefined; // of its ticket
}

/**
 * The scored groups that were received and are not acknowledged yet. A consumed group is acknowledged
 * only after a checkpoint that covers it is in the ledger; until then a crash brings it back. This
 * includes duplicates: a learner that restores an older checkpoint may need the other attempt, and for
 * an hour the stream drops a message that is sent again under the same id.
 *
 * Only the lease of each group is kept, since the next checkpoint may be many groups away. A message is
 * identified by its stream sequence number. If it is delivered again because its ack wait ran out, the
 * newer delivery is acknowledged.
 */
export class UnackedGroups {
  readonly #held = new Map<number, Held>();
  readonly #replaced = new Set<number>();

  get size(): number {
    return this.#held.size;
  }

  /** Extends the ack wait of every held message; call it within each ack wait. */
  prolong(): void {
    for (const { lease } of this.#held.values()) lease.working();
  }

  /** @returns false if this message is held already. */
  hold(lease: Lease, order: number | undefined): boolean {
    const isNew = !this.#held.has(lease.seq);
    this.#held.set(lease.seq, { lease, order });
    return isNew;
  }

  /** Marks a group as replaced by another attempt, so that the next checkpoint covers it in any case. */
  replace(seq: number): void {
    this.#replaced.add(seq);
  }

  /** Sequence numbers that a checkpoint taken now covers: messages of consumed tickets and replaced ones. */
  covered(isConsumed: (order: number) => boolean): number[] {
    return [...this.#held]
      .filter(([seq, { order }]) => {
        return this.#replaced.has(seq) || (order !== undefined && isConsumed(order));
      })
      .map(([seq]) => seq);
  }

  /** Counts the groups that a checkpoint taken now would cover: a metric, by its name in `metrics.jsonl`. */
  countAwaiting(isConsumed: (order: number) => boolean): Record<string, number> {
    return awaitingStats.record(this.covered(isConsumed).length);
  }

  /** Acknowledges messages once a checkpoint that covers them is in the ledger. */
  async settle(seqs: readonly number[]): Promise<void> {
    await Promise.all(
      seqs.map(async (seq) => {
        const held = this.#held.get(seq);
        this.forget(seq);
        await held?.lease.ack();
      }),
    );
    awaitingStats.record(0); // the next step counts again
  }

  /** Drops a message that is settled in another way. */
  forget(seq: number): void {
    this.#held.delete(seq);
    this.#replaced.delete(seq);
  }
}
