import type { GroupCounts } from '../../shared/wire/ledger.js';

/** Where an outstanding ticket is. */
export type TicketState =
  | 'issued' // with the actors or the reward service
  | 'arrived' // its scored group waits to be trained
  | 'stale' // its group came too late, or not in time; a second attempt is about to be issued
  | 'taken'; // in a minibatch of a step that is not confirmed yet

export interface TicketEntry<Group> {
  readonly order: number;
  readonly state: TicketState;
  readonly attempt: number;
  /** Known while this learner issued it; not known of what a checkpoint brought back. */
  readonly issuedAtVersion: number | undefined;
  /** The last version that may train on it, by the ticket or, once it is here, by the group. */
  readonly deadline: number;
  readonly group: Group | undefined; // from its arrival on
}

type TicketEnd = Exclude<keyof GroupCounts, 'issued' | 'outstanding'>;

/** What a checkpoint keeps of the table. */
export interface TicketTableState {
  readonly nextOrder: number;
  readonly consumedBelow: number;
  readonly consumedAbove: readonly number[];
  readonly counts: GroupCounts;
}

/** Whether a ticket had come to its end when the state was taken. */
export function isConsumedIn({
  consumedBelow,
  consumedAbove,
}: TicketTableState): (order: number) => boolean {
  const above = new Set(consumedAbove);
  return (order) => order < consumedBelow || above.has(order);
}

/**
 * The table of tickets: each is entered when it is issued and leaves it trained, skipped, stale or
 * dead. At every moment `issued = trained + skippedZeroVariance + stale + dead + outstanding`; a
 * reissue counts as one more issued and one more stale.
 *
 * @typeParam Group what has arrived for a ticket.
 */
export class TicketTable<Group> {
  readonly #entries = new Map<number, TicketEntry<Group>>(); // in order of issue
  readonly #consumedAbove = new Set<number>();
  #consumedBelow = 0;
  #nextOrder = 0;
  #ended: Record<TicketEnd, number> = { trained: 0, skippedZeroVariance: 0, stale: 0, dead: 0 };
  #issued = 0;

  /** The table as a checkpoint left it: everything outstanding is on its way again. */
  static restore<Group>(
    state: TicketTableState,
    deadlineOf: (rank: number) => number,
  ): TicketTable<Group> {
    const table = new TicketTable<Group>();
    const { trained, skippedZeroVariance, stale, dead, issued } = state.counts;
    table.#ended = { trained, skippedZeroVariance, stale, dead };
    table.#issued = issued;
    table.#nextOrder = state.nextOrder;
    table.#consumedBelow = state.consumedBelow;
    for (const order of state.consumedAbove) table.#consumedAbove.add(order);
    for (let order = state.consumedBelow; order < state.nextOrder; order++) {
      if (table.#consumedAbove.has(order)) continue;
      table.#entries.set(order, {
        order,
        state: 'issued',
        attempt: 0,
        issuedAtVersion: undefined,
        deadline: deadlineOf(table.#entries.size),
        group: undefined,
      });
    }
    table.#assertBalance();
    return table;
  }

  /** The order of the next ticket; all before it have been issued. */
  get nextOrder(): number {
    return this.#nextOrder;
  }

  /** Every ticket of a lower order came to its end. */
  get consumedBelow(): number {
    return this.#consumedBelow;
  }

  /** Tickets issued and not at an end yet, those of unconfirmed steps included. */
  get outstanding(): number {
    return this.#entries.size;
  }

  get counts(): GroupCounts {
    return { issued: this.#issued, ...this.#ended, outstanding: this.#entries.size };
  }

  get state(): TicketTableState {
    return {
      nextOrder: this.#nextOrder,
      consumedBelow: this.#consumedBelow,
      consumedAbove: [...this.#consumedAbove].sort((a, b) => a - b),
      counts: this.counts,
    };
  }

  /** In ticket order. */
  entries(): TicketEntry<Group>[] {
    return [...this.#entries.values()];
  }

  entry(order: number): TicketEntry<Group> | undefined {
    return this.#entries.get(order);
  }

  /** Whether the ticket came to its end: trained, skipped, stale twice, or dead. */
  isConsumed(order: number): boolean {
    return order < this.#consumedBelow || this.#consumedAbove.has(order);
  }

  issue(issuedAtVersion: number, deadline: number): void {
    const order = this.#nextOrder++;
    this.#issued += 1;
    const entry = { order, attempt: 0, issuedAtVersion, deadline, group: undefined };
    this.#entries.set(order, { ...entry, state: 'issued' });
    this.#assertBalance();
  }

  /** @param attempt that the group answers: after a restart the second may be out unknown to the table. */
  arrive(order: number, group: Group, deadline: number, attempt = 0): void {
    const known = this.#at(order, 'issued').attempt;
    const newest = Math.max(known, attempt); // none is ever sent twice
    this.#move(order, 'issued', { state: 'arrived', group, deadline, attempt: newest });
  }

  /**
   * The group of an attempt is past the bound, whether it has arrived or was given up while it was
   * sampled: the first time a second attempt will follow, the second time none.
   */
  refuseAsStale(order: number, attempt = 0): 'reissue' | 'gone' {
    const from = this.#entries.get(order)?.state === 'issued' ? 'issued' : 'arrived';
    if (Math.max(this.#at(order, from).attempt, attempt) === 0) {
      this.#move(order, from, { state: 'stale' });
      return 'reissue';
    }
    this.#end(order, from, 'stale');
    return 'gone';
  }

  /** The second attempt of a stale ticket is with the actors. */
  reissue(order: number, issuedAtVersion: number, deadline: number): void {
    const fresh = { state: 'issued', attempt: 1, issuedAtVersion, deadline } as const;
    this.#move(order, 'stale', { ...fresh, group: undefined });
    this.#issued += 1;
    this.#ended.stale += 1;
    this.#assertBalance();
  }

  take(orders: readonly number[]): Group[] {
    return orders.map((order) => this.#move(order, 'arrived', { state: 'taken' }).group!);
  }

  /** The step that took them did not happen. */
  putBack(orders: readonly number[]): void {
    for (const order of orders) this.#move(order, 'taken', { state: 'arrived' });
  }

  train(orders: readonly number[]): void {
    for (const order of orders) this.#end(order, 'taken', 'trained');
  }

  skip(order: number): void {
    this.#end(order, 'issued', 'skippedZeroVariance');
  }

  die(order: number): void {
    this.#end(order, 'issued', 'dead');
  }

  #at(order: number, state: TicketState): TicketEntry<Group> {
    const entry = this.#entries.get(order);
    if (entry?.state !== state) {
      throw new Error(`ticket ${order} is ${entry?.state ?? 'not outstanding'}, expected ${state}`);
    }
    return entry;
  }

  #move(order: number, from: TicketState, change: Partial<TicketEntry<Group>>): TicketEntry<Group> {
    const moved = { ...this.#at(order, from), ...change };
    this.#entries.set(order, moved);
    return moved;
  }

  #end(order: number, from: TicketState, end: TicketEnd): void {
    this.#at(order, from);
    this.#entries.delete(order);
    this.#ended[end] += 1;
    this.#consumedAbove.add(order);
    while (this.#consumedAbove.delete(this.#consumedBelow)) this.#consumedBelow += 1;
    this.#assertBalance();
  }

  #assertBalance(): void {
    const { issued, outstanding, trained, skippedZeroVariance, stale, dead } = this.counts;
    if (issued !== trained + skippedZeroVariance + stale + dead + outstanding) {
      throw new Error(`the ticket table does not balance: ${JSON.stringify(this.counts)}`);
    }
  }
}
