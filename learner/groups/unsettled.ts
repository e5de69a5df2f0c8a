import type { Delivery } from '../../shared/broker/delivery.js';

type Handle = Pick<Delivery<unknown>, 'seq' | 'working' | 'ack' | 'dead'>;

/**
 * The scored groups that the broker still holds for us. What the weights have consumed is
 * acknowledged only once a checkpoint says so; until then a crash brings all of it back.
 *
 * A message is known by its sequence number in the stream. When it comes a second time, because it
 * waited longer than the broker's patience, the newer delivery is the one to acknowledge.
 */
export class Unsettled {
  readonly #handles = new Map<number, Handle>();
  readonly #consumed = new Set<number>();

  get size(): number {
    return this.#handles.size;
  }

  /** Asks the broker not to deliver again yet what is held; to be called within each ack wait. */
  prolong(): void {
    for (const handle of this.#handles.values()) handle.working();
  }

  /** @returns false if this very message is held already. */
  hold(delivery: Handle): boolean {
    const isNew = !this.#handles.has(delivery.seq);
    this.#handles.set(delivery.seq, delivery);
    return isNew;
  }

  /** The next checkpoint settles it. */
  consume(seq: number): void {
    this.#consumed.add(seq);
  }

  /** What a checkpoint taken now covers. */
  consumedSoFar(): number[] {
    return [...this.#consumed];
  }

  /** A checkpoint that covers these is in the ledger. */
  async settle(seqs: readonly number[]): Promise<void> {
    await Promise.all(seqs.map((seq) => this.discard(seq)));
  }

  /** Acknowledges a message that no checkpoint needs to cover. */
  async discard(seq: number): Promise<void> {
    await this.#release(seq)?.ack();
  }

  async refuse(seq: number, reason: string): Promise<void> {
    await this.#release(seq)?.dead(reason);
  }

  #release(seq: number): Handle | undefined {
    const handle = this.#handles.get(seq);
    this.#handles.delete(seq);
    this.#consumed.delete(seq);
    return handle;
  }
}
