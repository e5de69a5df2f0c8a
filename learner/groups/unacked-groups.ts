import { Gauge } from 'prom-client';
import type { Lease } from '../../shared/broker/delivery.js';

const awaitingCheckpoint = new Gauge({
  name: 'rl_groups_awaiting_checkpoint',
  help: 'Groups that are trained or dropped; their messages stay in the queue of scored groups until a checkpoint.',
});

interface Held {
  readonly lease: Lease;
  readonly order: number | undefined; // of its ticket
}

/**
 * The scored groups that the broker still holds for us. What the weights have consumed is
 * acknowledged only once a checkpoint says so; until then a crash brings all of it back. That goes for
 * every group of a ticket, also one that comes too many: a learner that goes back may have to do with another
 * attempt than this one, and streams drop for an hour what is sent again under the same identity.
 *
 * Of each only the lease is kept, since a checkpoint may be many groups away. A message is known by its
 * sequence number in the stream. When it comes a second time, because it waited longer than the
 * broker was patient, the newer delivery is the one to acknowledge.
 */
export class UnackedGroups {
  readonly #held = new Map<number, Held>();
  readonly #replaced = new Set<number>();

  get size(): number {
    return this.#held.size;
  }

  /** Asks the broker not to deliver again yet what is held; to be called within each ack wait. */
  prolong(): void {
    for (const { lease } of this.#held.values()) lease.working();
  }

  /** @returns false if this very message is held already. */
  hold(lease: Lease, order: number | undefined): boolean {
    const isNew = !this.#held.has(lease.seq);
    this.#held.set(lease.seq, { lease, order });
    return isNew;
  }

  /** Another attempt at its ticket is out, so the next checkpoint covers it, ticket at an end or not. */
  replace(seq: number): void {
    this.#replaced.add(seq);
  }

  /** What a checkpoint taken now covers: the messages of tickets at their end, and those replaced. */
  covered(isConsumed: (order: number) => boolean): number[] {
    return [...this.#held]
      .filter(([seq, { order }]) => {
        return this.#replaced.has(seq) || (order !== undefined && isConsumed(order));
      })
      .map(([seq]) => seq);
  }

  /** How many groups a checkpoint taken now would cover; sets the metric of it. */
  countAwaiting(isConsumed: (order: number) => boolean): number {
    const { length } = this.covered(isConsumed);
    awaitingCheckpoint.set(length);
    return length;
  }

  /** A checkpoint that covers these is in the ledger. */
  async settle(seqs: readonly number[]): Promise<void> {
    await Promise.all(
      seqs.map(async (seq) => {
        const held = this.#held.get(seq);
        this.forget(seq);
        await held?.lease.ack();
      }),
    );
    awaitingCheckpoint.set(0); // as of that checkpoint; the next step counts again
  }

  /** It is settled otherwise. */
  forget(seq: number): void {
    this.#held.delete(seq);
    this.#replaced.delete(seq);
  }
}
