import type { Death } from '../../shared/broker/dead-letter-watch.js';
import type { Delivery } from '../../shared/broker/delivery.js';
import { isUniform } from '../../shared/rl/zero-variance.js';
import { countDroppedGroup, countWastedTokens } from '../../shared/service/telemetry/drops.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import { orderName, readableId } from '../../shared/base/ticket-name.js';
import { type Attempt } from '../../shared/wire/ticket-ids.js';
import type { ActorAudit } from '../step/actor-audit.js';
import type { Admission } from './admission.js';
import type { BrokenPolicyWatch } from '../stop/broken-policy-watch.js';
import type { Changes } from '../../shared/base/changes.js';
import type { NoSignalWatch } from '../stop/no-signal-watch.js';
import { EarlyAnswers } from './early-answers.js';
import type { GroupStats } from './group-stats.js';
import type { TicketSource } from '../tickets/ticket-source.js';
import type { UnackedGroups } from './unacked-groups.js';
import { refusal, versionsOf } from './verdict.js';

/** A scored group that waits for its step. */
export interface ArrivedGroup {
  readonly scored: ScoredGroup;
  readonly seq: number; // of its message
  readonly sampledBy: readonly number[]; // versions of its tokens
  readonly arrivedAtVersion: number;
  readonly arrivedAt?: number; // ms since the epoch, for its trace
  readonly trace?: string | undefined; // `traceparent` of the span that scored it
}

export interface GroupReceiverOptions {
  readonly admission: Admission<ArrivedGroup>;
  readonly tickets: TicketSource;
  readonly unacked: UnackedGroups;
  readonly changes: Changes;
  readonly vocabSize: number;
  readonly zeroVariance: RunConfig['zeroVariance'];
  /** Groups of quarantined actors are taken in, to be refused and asked of others. */
  readonly audit: Pick<ActorAudit, 'isQuarantined' | 'refused'>;
  /** The newest version that may have sampled; set before it is published. */
  readonly newestVersion: () => number;
  readonly isResumed: boolean;
  /**
   * After a crash, what came of tickets that only the lost steps issued is on its way too: of orders
   * below this, and of none above. 0 where no learner was before this one.
   */
  readonly issuedBelow: number;
  readonly groupStats: GroupStats;
  readonly noSignalStreak: Pick<NoSignalWatch, 'skipped' | 'admitted'>;
  readonly brokenPolicy: Pick<BrokenPolicyWatch, 'died' | 'arrived'>;
  readonly log: Logger;
}

/**
 * Takes in scored groups: each is entered in the ticket table, or is skipped, refused or put aside, and
 * its message is held until a checkpoint covers it.
 */
export class GroupReceiver {
  readonly #options: GroupReceiverOptions;
  readonly #early: EarlyAnswers;

  constructor(options: GroupReceiverOptions) {
    this.#options = options;
    this.#early = new EarlyAnswers((order) => options.admission.table.isConsumed(order));
  }

  async receive(delivery: Delivery<ScoredGroup>): Promise<void> {
    const { admission, unacked } = this.#options;
    const { value: scored, seq } = delivery;
    const { ticket } = scored.group;
    const order = this.#options.tickets.orderOf(ticket);
    if (!unacked.hold(delivery.lease, order)) return;

    const { table } = admission;
    if (order !== undefined && table.isConsumed(order)) {
      drop(scored, 'intake', 'duplicate');
      return;
    }

    const entry = order === undefined ? undefined : table.entry(order);
    const isAhead = order !== undefined && order >= table.nextOrder;
    const isKnown = order !== undefined && this.#mayBeOut(order, ticket.attempt);
    const reason = refusal(scored, {
      ticket: isKnown
        ? this.#options.tickets.issued(order, ticket.attempt, ticket.issuedAtVersion)
        : undefined,
      entry,
      isResumed: this.#options.isResumed,
      newestVersion: this.#options.newestVersion(),
      vocabSize: this.#options.vocabSize,
    });
    if (reason !== undefined) {
      // A lie says nothing about its ticket, which another actor can answer.
      const isLie = reason === 'impossible_logprobs';
      if (entry?.state === 'issued') {
        if (!isLie) table.die(order!);
        else if (ticket.attempt >= entry.attempt) table.refuseAsStale(order!, ticket.attempt);
      }
      const { actor } = scored.group;
      drop(scored, 'intake', reason);
      this.#options.log.warn(
        { ticketId: readableId(ticket.ticketId), actor, reason, seq },
        'refused a scored group',
      );
      unacked.forget(seq);
      await delivery.dead(reason);
      this.#options.changes.notify();
      if (isLie) await this.#options.audit.refused(actor, admission.version);
      return;
    }

    // A group that was given up for too old and came all the same stands for the second attempt.
    const isMissed = entry?.state === 'stale' && entry.group === undefined;
    const attempt = ticket.attempt + (isMissed && ticket.attempt === entry.attempt ? 1 : 0);
    if (entry?.state === 'issued' && attempt >= entry.attempt) {
      this.#admit(order!, delivery);
      return;
    }
    const isEarly = isAhead || attempt > entry!.attempt;
    if (isEarly && this.#early.keepGroup(order!, attempt, delivery)) return;
    drop(scored, 'intake', 'duplicate');
  }

  /** An attempt has just entered the table: what came before it is taken in now. */
  claim(order: number, attempt: number): void {
    const early = this.#early.take(order, attempt);
    if (early === undefined) return;
    if ('group' in early) this.#admit(order, early.group);
    else this.die(order, attempt, early.death);
  }

  /** Whether an attempt need not be published, because its group or its end is here already. */
  isAnswered(order: number, attempt: number): boolean {
    return this.#early.has(order, attempt);
  }

  /**
   * The ticket's message is in the dead-letter stream, so its group will never come. If that is
   * because it grew too old while it was sampled, it is a stale group, and asked for once more.
   */
  die(order: number, attempt: number, death: Death): void {
    const { admission, changes, isResumed, log } = this.#options;
    const { table } = admission;
    if (!this.#mayBeOut(order, attempt)) {
      log.debug({ order, attempt, ...death }, 'ignored the death of what was never issued');
      return;
    }
    const entry = table.entry(order);
    const isNext = entry?.state === 'stale'; // its second attempt is about to be entered
    const isAmongLost = isResumed && entry !== undefined && entry.state !== 'issued';
    const isEarly = (isNext || isAmongLost) && attempt > entry.attempt;
    if (order >= table.nextOrder || isEarly) {
      this.#early.keepDeath(order, attempt, death);
      return;
    }
    if (entry?.state !== 'issued' || entry.attempt > attempt) return; // another copy made its way
    const { stage, reason, cause } = death;
    if (cause.kind === 'outdated') {
      const outcome = table.refuseAsStale(order, attempt);
      countDroppedGroup(labelOf(stage), 'stale');
      log.warn({ ticketId: orderName(order), outcome, reason }, 'a group grew too old');
    } else {
      table.die(order);
      countDroppedGroup(labelOf(stage), cause.kind === 'other' ? 'dead_letter' : cause.kind);
      log.warn({ ticketId: orderName(order), stage, reason }, 'a ticket died');
      if (cause.kind === 'not_finite') this.#options.brokenPolicy.died(cause.version, table);
    }
    changes.notify();
  }

  /** What is out and has not been heard of. */
  get awaited(): Attempt[] {
    const { admission, tickets } = this.#options;
    return admission.table
      .entries()
      .filter(({ state }) => state === 'issued')
      .map(({ order, attempt }) => ({ ticketId: tickets.at(order, attempt).ticketId, attempt }));
  }

  /** A ticket that is awaited is in no queue: another one takes its place. */
  lose(order: number): void {
    const { admission, changes } = this.#options;
    admission.table.die(order);
    countDroppedGroup('learner', 'lost');
    changes.notify();
  }

  /**
   * Whoever was given a ticket kept it too long, and it was taken from him: it is asked for once more, the first time.
   * An answer that comes all the same is taken if it is here before the second attempt is out, and dropped otherwise.
   */
  withdraw(order: number, attempt: number): void {
    const { admission, changes } = this.#options;
    const entry = admission.table.entry(order);
    if (entry?.state !== 'issued' || entry.attempt > attempt) return; // it has just been answered
    admission.table.refuseAsStale(order, attempt);
    countDroppedGroup('actor', 'overdue');
    changes.notify();
  }

  /** Whether a learner may have issued this attempt: this one, or one that was lost. */
  #mayBeOut(order: number, attempt: number): boolean {
    const { admission, issuedBelow } = this.#options;
    const { nextOrder } = admission.table; // it is out, too, while its acknowledgement is late
    return attempt <= 1 && order < Math.max(nextOrder + 1, issuedBelow);
  }

  #admit(order: number, { value: scored, seq, trace }: Delivery<ScoredGroup>): void {
    const { admission, tickets, changes, groupStats, noSignalStreak, brokenPolicy, zeroVariance } =
      this.#options;
    brokenPolicy.arrived(scored.group);
    const hasVariance = !isUniform(scored.scores.map(({ exactReward }) => exactReward));
    const isBarred = this.#options.audit.isQuarantined(scored.group.actor);
    if (!hasVariance && zeroVariance === 'refill' && !isBarred) {
      admission.table.skip(order);
      groupStats.skipped(scored);
      noSignalStreak.skipped(scored);
      tickets.consumed(scored);
      drop(scored, 'intake', 'zero_variance');
    } else {
      const sampledBy = versionsOf(scored);
      const arrival = { arrivedAtVersion: admission.version, arrivedAt: Date.now(), trace };
      const group = { scored, seq, sampledBy, ...arrival };
      admission.arrive(order, group, sampledBy, scored.group.ticket.attempt);
      groupStats.admitted(scored);
      if (hasVariance) noSignalStreak.admitted(scored);
    }
    changes.notify();
  }
}

const stages = new Set(['actor', 'reward', 'learner']);

/** A label for who gave a message up: the dead letter says it itself, and may say anything. */
function labelOf(stage: string): string {
  return stages.has(stage) ? stage : 'unknown';
}

/** Counts a group that will not be trained on, and the tokens that were sampled for nothing. */
export function drop(scored: ScoredGroup, stage: string, reason: string): void {
  countDroppedGroup(stage, reason);
  countWastedTokens(reason, tokenCount(scored));
}

export function tokenCount({ group }: ScoredGroup): number {
  return group.rollouts.reduce((sum, { tokens }) => sum + tokens.length, 0);
}
