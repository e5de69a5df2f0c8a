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

/** A message that was received and is not acknowledged yet. */
export interface HeldGroup {
  readonly id: string; // of the message
  lease: Lease;
  readonly order: number | undefined; // of its ticket
  isReplaced: boolean; // by another attempt
}

/**
 * The scored groups that were received and are not acknowledged yet. A consumed group is acknowledged
 * only after a checkpoint that covers it is in the ledger; until then a crash brings it back. This
 * includes duplicates: a learner that restores an older checkpoint may need the other attempt, and for
 * an hour the stream drops a message that is sent again under the same id.
 *
 * Only the lease of each group is kept, since the next checkpoint may be many groups away. A message is
 * identified by its stream sequence number and its id: a server that lost the end of a stream reuses the
 * numbers, and acknowledges by number alone. If a message is delivered again because its ack wait ran out,
 * the newer delivery is acknowledged.
 */
export class UnackedGroups {
  readonly #held = new Map<number, HeldGroup>(); // by sequence number

  get size(): number {
    return this.#held.size;
  }

  /** Extends the ack wait of every held message; call it within each ack wait. */
  extendLeases(): void {
    for (const { lease } of this.#held.values()) lease.working();
  }

  /** @param id of the message. @returns false if this message is held already. */
  hold(lease: Lease, order: number | undefined, id: string): boolean {
    const held = this.#held.get(lease.seq);
    if (held?.id === id) {
      held.lease = lease;
      return false;
    }
    this.#held.set(lease.seq, { id, lease, order, isReplaced: false });
    return true;
  }

  /** Marks a group as replaced by another attempt, so that the next checkpoint covers it in any case. */
  replace(seq: number, id: string): void {
    const held = this.#held.get(seq);
    if (held?.id === id) held.isReplaced = true;
  }

  /** Returns the messages that a checkpoint taken now covers: those of consumed tickets and replaced ones. */
  covered(isConsumed: (order: number) => boolean): HeldGroup[] {
    return [...this.#held.values()].filter(({ order, isReplaced }) => {
      return isReplaced || (order !== undefined && isConsumed(order));
    });
  }

  /** Counts the groups that a checkpoint taken now would cover: a metric, by its name in `metrics.jsonl`. */
  countAwaiting(isConsumed: (order: number) => boolean): Record<string, number> {
    return awaitingStats.record(this.covered(isConsumed).length);
  }

  /** Acknowledges messages once a checkpoint that covers them is in the ledger. */
  async settle(groups: readonly HeldGroup[]): Promise<void> {
    await Promise.all(
      groups.map(async (group) => {
        const { seq } = group.lease;
        if (this.#held.get(seq) !== group) return; // lost by the server, and another has its number
        this.forget(seq);
        await group.lease.ack();
      }),
    );
    awaitingStats.record(0); // the next step counts again
  }

  /** Drops a message that is settled in another way. */
  forget(seq: number): void {
    this.#held.delete(seq);
  }
}
