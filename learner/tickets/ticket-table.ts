import type { GroupCounts } from '../../shared/wire/ledger.js';

/** State of an outstanding ticket. */
type TicketState =
  | 'issued' // with the actors or the reward service
  | 'arrived' // its scored group waits to be trained on
  | 'retry' // its group was too old, overdue or refused; a second attempt is about to be issued
  | 'taken'; // part of a step that is not confirmed yet

export interface TicketEntry<Group> {
  readonly order: number;
  readonly state: TicketState;
  readonly attempt: number;
  /** Undefined for a ticket that was restored from a checkpoint. */
  readonly issuedAtVersion: number | undefined;
  /** Last version that may train on it: set by the ticket, then by its group once that has arrived. */
  readonly deadline: number;
  readonly group: Group | undefined; // from its arrival on
  /** Version of its group's oldest token, counted along the branch of the weights in training; from its arrival on. */
  readonly oldest?: number | undefined;
}

type TicketEnd = Exclude<keyof GroupCounts, 'issued' | 'outstanding'>;

/** The part of the table that a checkpoint stores. */
export interface TicketTableState {
  readonly nextOrder: number;
  readonly consumedBelow: number;
  readonly consumedAbove: readonly number[];
  readonly counts: GroupCounts;
}

/** Returns a test for whether a ticket was consumed when `state` was taken. */
export function isConsumedIn({
  consumedBelow,
  consumedAbove,
}: TicketTableState): (order: number) => boolean {
  const above = new Set(consumedAbove);
  return (order) => order < consumedBelow || above.has(order);
}

/**
 * The table of outstanding tickets. A ticket enters it when it is issued and leaves it when it is
 * consumed: trained, skipped, stale twice or dead. Invariant:
 * `issued = trained + skippedZeroVariance + stale + dead + outstanding`. A reissue adds one to
 * `issued` and one to `stale`.
 *
 * @typeParam Group the record of a group that has arrived for a ticket.
 */
export class TicketTable<Group> {
  readonly #entries = new Map<number, TicketEntry<Group>>(); // by order, in the order of issue
  readonly #consumedAbove = new Set<number>();
  #consumedBelow = 0;
  #nextOrder = 0;
  #ended: Record<TicketEnd, number> = { trained: 0, skippedZeroVariance: 0, stale: 0, dead: 0 };
  #issued = 0;

  /** Restores the table from a checkpoint; every outstanding ticket counts as issued again. */
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

  /** The order of the next ticket; all lower orders have been issued. */
  get nextOrder(): number {
    return this.#nextOrder;
  }

  /** Every ticket of a lower order is consumed. */
  get consumedBelow(): number {
    return this.#consumedBelow;
  }

  /** Number of tickets issued and not consumed yet, including those of unconfirmed steps. */
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

  /** All outstanding tickets, in ticket order. */
  entries(): TicketEntry<Group>[] {
    return [...this.#entries.values()];
  }

  entry(order: number): TicketEntry<Group> | undefined {
    return this.#entries.get(order);
  }

  /** Whether the ticket is consumed: trained, skipped, stale twice, or dead. */
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

  /**
   * Records the group that arrived for a ticket.
   *
   * @param attempt the attempt that the group answers; after a restart the table may not know that a second
   *   attempt was issued.
   * @param oldest version of its oldest token.
   */
  arrive(order: number, group: Group, deadline: number, attempt = 0, oldest?: number): void {
    const known = this.#at(order, 'issued').attempt;
    const newest = Math.max(known, attempt); // no attempt is ever sent twice
    this.#move(order, 'issued', { state: 'arrived', group, deadline, attempt: newest, oldest });
  }

  /**
   * Marks a ticket as stale, whether its group has arrived or was given up during sampling.
   *
   * @returns 'reissue' the first time, since a second attempt follows; 'gone' the second time, when
   *   the ticket is consumed.
   */
  retryOrEnd(order: number, attempt = 0): 'reissue' | 'gone' {
    const from = this.#entries.get(order)?.state === 'issued' ? 'issued' : 'arrived';
    if (Math.max(this.#at(order, from).attempt, attempt) === 0) {
      this.#move(order, from, { state: 'retry' });
      return 'reissue';
    }
    this.#end(order, from, 'stale');
    return 'gone';
  }

  /** Records that the second attempt of a stale ticket was issued. */
  reissue(order: number, issuedAtVersion: number, deadline: number): void {
    const fresh = { state: 'issued', attempt: 1, issuedAtVersion, deadline } as const;
    this.#move(order, 'retry', { ...fresh, group: undefined });
    this.#issued += 1;
    this.#ended.stale += 1;
    this.#assertBalance();
  }

  take(orders: readonly number[]): Group[] {
    return orders.map((order) => this.#move(order, 'arrived', { state: 'taken' }).group!);
  }

  /** Undoes `take`, because the step did not happen. */
  putBack(orders: readonly number[]): void {
    for (const order of orders) this.#move(order, 'taken', { state: 'arrived' });
  }

  train(orders: readonly number[]): void {
    for (const order of orders) this.#end(order, 'taken', 'trained');
  }

  skip(order: number): void {
    this.#end(order, 'issued', 'skippedZeroVariance');
  }

  markDead(order: number): void {
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
