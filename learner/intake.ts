import { Counter } from 'prom-client';
import type { Delivery } from '../shared/broker/delivery.js';
import { isUniform } from '../shared/rl/zero-variance.js';
import type { Logger } from '../shared/telemetry/logger.js';
import type { RunConfig } from '../shared/wire/run-config.js';
import type { ScoredGroup } from '../shared/wire/scored-group.js';
import type { Admission } from './admission.js';
import type { Changes } from './changes.js';
import type { Tally } from './tally.js';
import { orderOf, ticketId, type TicketSource } from './ticket-source.js';
import type { Unsettled } from './unsettled.js';
import { refusal, versionsOf } from './verdict.js';

export const groupsDropped = new Counter({
  name: 'rl_groups_dropped_total',
  help: 'Groups that were not trained on, by where and why they were dropped',
  labelNames: ['stage', 'reason'],
});

export const tokensWasted = new Counter({
  name: 'rl_tokens_wasted_total',
  help: 'Sampled tokens that were not trained on, by why',
  labelNames: ['reason'],
});

/** A scored group that waits for its step. */
export interface ArrivedGroup {
  readonly scored: ScoredGroup;
  readonly seq: number; // of its message
  readonly sampledBy: readonly number[]; // versions of its tokens
  readonly arrivedAtVersion: number;
}

export interface IntakeOptions {
  readonly admission: Admission<ArrivedGroup>;
  readonly tickets: TicketSource;
  readonly unsettled: Unsettled;
  readonly changes: Changes;
  readonly vocabSize: number;
  readonly zeroVariance: RunConfig['zeroVariance'];
  /** The newest version that may have sampled; set before it is published. */
  readonly newestVersion: () => number;
  /** After a crash, groups of tickets that only the lost steps issued are on their way too. */
  readonly isResumed: boolean;
  readonly tally: Tally;
  readonly log: Logger;
}

/**
 * Takes in scored groups: each comes to rest in the book, or is skipped, refused or put aside, and
 * its message is held until a checkpoint covers it.
 */
export class Intake {
  readonly #options: IntakeOptions;
  /** Groups of tickets that are not in the book yet, by order. */
  readonly #early = new Map<number, Delivery<ScoredGroup>>();
  /** Dead tickets of which the same is true. */
  readonly #deadEarly = new Set<number>();

  constructor(options: IntakeOptions) {
    this.#options = options;
  }

  async receive(delivery: Delivery<ScoredGroup>): Promise<void> {
    const { admission, unsettled } = this.#options;
    const { value: scored, seq } = delivery;
    if (!unsettled.hold(delivery)) return;

    const { ticket } = scored.group;
    const order = orderOf(ticket.ticketId);
    const { book } = admission;
    if (order !== undefined && book.isConsumed(order)) return this.#discard(delivery, 'duplicate');

    const entry = order === undefined ? undefined : book.entry(order);
    const isAhead = order !== undefined && order >= book.nextOrder;
    const mayBeAhead = this.#options.isResumed || order === book.nextOrder; // its ack may be late
    const isKnown = order !== undefined && ticket.attempt <= 1 && (!isAhead || mayBeAhead);
    const reason = refusal(scored, {
      ticket: isKnown ? this.#options.tickets.at(order, ticket.attempt) : undefined,
      entry,
      newestVersion: this.#options.newestVersion(),
      vocabSize: this.#options.vocabSize,
    });
    if (reason !== undefined) {
      if (entry?.state === 'issued') book.die(order!);
      drop(scored, 'intake', reason);
      this.#options.log.warn({ ticketId: ticket.ticketId, reason, seq }, 'refused a scored group');
      await unsettled.refuse(seq, reason);
      this.#options.changes.notify();
      return;
    }

    if (isAhead || entry?.state === 'stale') {
      if (this.#early.has(order!)) return this.#discard(delivery, 'duplicate');
      this.#early.set(order!, delivery);
      return;
    }
    if (entry?.state !== 'issued') return this.#discard(delivery, 'duplicate');
    this.#admit(order!, delivery);
  }

  /** A ticket has just entered the book: what came before it is taken in now. */
  claim(order: number): void {
    const early = this.#early.get(order);
    this.#early.delete(order);
    if (early !== undefined) this.#admit(order, early);
    else if (this.#deadEarly.delete(order)) this.die(order, 0, 'given up before a crash');
  }

  /** Whether a ticket need not be published, because its group or its end is here already. */
  isAnswered(order: number): boolean {
    return this.#early.has(order) || this.#deadEarly.has(order);
  }

  /** The ticket's message is in the dead-letter stream, so its group will never come. */
  die(order: number, attempt: number, reason: string): void {
    const { admission, changes, log } = this.#options;
    const { book } = admission;
    if (order >= book.nextOrder) {
      this.#deadEarly.add(order);
      return;
    }
    const entry = book.entry(order);
    if (entry?.state !== 'issued' || entry.attempt > attempt) return; // another copy made its way
    book.die(order);
    groupsDropped.inc({ stage: 'dead_letter', reason: 'dead_letter' });
    log.warn({ ticketId: ticketId(order), reason }, 'a ticket died');
    changes.notify();
  }

  #admit(order: number, { value: scored, seq }: Delivery<ScoredGroup>): void {
    const { admission, unsettled, changes, tally, zeroVariance } = this.#options;
    const hasVariance = !isUniform(scored.scores.map(({ exactReward }) => exactReward));
    if (!hasVariance && zeroVariance === 'refill') {
      admission.book.skip(order);
      unsettled.consume(seq);
      tally.skipped(scored);
      drop(scored, 'intake', 'zero_variance');
    } else {
      const sampledBy = versionsOf(scored);
      const group = { scored, seq, sampledBy, arrivedAtVersion: admission.version };
      admission.arrive(order, group, sampledBy);
      tally.admitted(scored);
    }
    changes.notify();
  }

  async #discard({ value, seq }: Delivery<ScoredGroup>, reason: string): Promise<void> {
    drop(value, 'intake', reason);
    await this.#options.unsettled.discard(seq);
  }
}

/** Counts a group that will not be trained on, and the tokens that were sampled for nothing. */
export function drop(scored: ScoredGroup, stage: string, reason: string): void {
  groupsDropped.inc({ stage, reason });
  tokensWasted.inc({ reason }, tokenCount(scored));
}

export function tokenCount({ group }: ScoredGroup): number {
  return group.rollouts.reduce((sum, { tokens }) => sum + tokens.length, 0);
}
