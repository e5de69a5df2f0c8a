import type { Death } from '../../shared/broker/dead-letter-watch.js';
import type { Delivery } from '../../shared/broker/delivery.js';
import { isUniform } from '../../shared/rl/advantages.js';
import { countDroppedGroup } from '../../shared/service/telemetry/drops.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { tokenCount, versionsIn } from '../../shared/wire/rollout-group.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import { orderName, readableId } from '../../shared/base/ticket-name.js';
import { type Attempt, messageIdOf } from '../../shared/wire/ticket-ids.js';
import type { ActorAudit } from '../audit/actor-audit.js';
import type { SelectionAudit } from '../audit/selection-audit.js';
import type { VersionAudit } from '../audit/version-audit.js';
import type { GroupTokens, TokenAccount } from '../cost/token-account.js';
import type { Admission } from './admission.js';
import type { BrokenPolicyWatch } from '../stop/broken-policy-watch.js';
import type { Changes } from '../../shared/base/changes.js';
import type { NoSignalWatch } from '../stop/no-signal-watch.js';
import type { Certificates } from '../audit/certificates.js';
import { EarlyAnswers } from './early-answers.js';
import { countDrop, type GroupStats } from './group-stats.js';
import type { TicketContent, TicketSource } from '../tickets/ticket-source.js';
import type { UnackedGroups } from './unacked-groups.js';
import {
  type ArrivedGroup,
  refusalReason,
  type RefusalReason,
  type Verdict,
} from './check-scored-group.js';

interface GroupReceiverOptions {
  readonly admission: Admission<ArrivedGroup>;
  readonly tickets: TicketSource;
  readonly unacked: UnackedGroups;
  readonly account: Pick<TokenAccount, 'receive' | 'waste' | 'discard'>;
  readonly changes: Changes;
  readonly vocabSize: number;
  readonly zeroVariance: RunConfig['zeroVariance'];
  /** A quarantined actor's group is admitted, then refused as stale, so that its ticket is reissued. */
  readonly audit: Pick<ActorAudit, 'isQuarantined' | 'refused'>;
  readonly versionAudit: Pick<VersionAudit, 'consider'>;
  readonly selection: Pick<SelectionAudit, 'solved'>;
  readonly certificates: Pick<Certificates, 'verdict' | 'count'>;
  /** Renews the leader lease. @throws if it is lost, or cannot be renewed now. */
  readonly confirmLead: () => Promise<void>;
  /** The newest version that actors may have sampled with; set before it is published. */
  readonly newestVersion: () => number;
  readonly isResumed: boolean;
  /**
   * An upper bound on the ticket orders that earlier learners issued; 0 in a new run. After a crash,
   * groups and deaths of tickets that the checkpoint does not know may still arrive below this bound.
   */
  readonly issuedBelow: number;
  readonly groupStats: GroupStats;
  readonly noSignal: Pick<NoSignalWatch, 'skipped' | 'admitted'>;
  readonly brokenPolicy: Pick<BrokenPolicyWatch, 'died' | 'arrived'>;
  /** Reports a ticket that has ended without a group or a dead letter. */
  readonly onUnanswered: (ticket: TicketContent, reason: string) => void;
  readonly log: Logger;
  readonly maxEarlyBytes?: number; // of groups kept for tickets that are not issued yet
}

/** Enough for thousands of short groups, and little beside what a learner takes anyway. */
const usualEarlyBytes = 128 * 2 ** 20;

/** Only the actor is to blame for these, so the ticket goes to another. */
const actorsFaults: ReadonlySet<string> = new Set<RefusalReason>([
  'impossible_logprobs',
  'wrong_canary',
]);

/**
 * Receives scored groups and dead tickets. Each group is admitted to the ticket table, skipped, refused,
 * dropped as a duplicate, or kept until its ticket is issued. Except for refused groups, its message stays
 * unacknowledged until a checkpoint covers it.
 */
export class GroupReceiver {
  readonly #options: GroupReceiverOptions;
  readonly #early: EarlyAnswers;

  constructor(options: GroupReceiverOptions) {
    this.#options = options;
    this.#early = new EarlyAnswers((order) => options.admission.table.isConsumed(order));
  }

  /**
   * Resolves when another group should be received. After a crash the queue may hold groups whose tickets are
   * issued only many steps later. While those in memory exceed `maxEarlyBytes` and no issued ticket awaits its group, the
   * rest stay in the queue.
   */
  async ready(signal: AbortSignal): Promise<void> {
    const { admission, changes, maxEarlyBytes = usualEarlyBytes } = this.#options;
    const isAnyAwaited = () => admission.table.entries().some(({ state }) => state === 'issued');
    while (!signal.aborted && this.#early.bytes > maxEarlyBytes && !isAnyAwaited()) {
      await changes.next(signal);
    }
  }

  async receive(delivery: Delivery<ScoredGroup>): Promise<void> {
    const { admission, unacked, account, tickets, certificates, confirmLead } = this.#options;
    const { value: scored, seq } = delivery;
    const { ticket } = scored.group;
    const { table } = admission;
    const order = tickets.orderOf(ticket);
    const certificate = certificates.verdict(scored);
    const reasonNow = () => this.#reasonAgainst(scored, order, certificate);
    let reason = reasonNow();
    if (reason !== undefined) {
      // A learner that has lost its lease unnoticed does not know its successor's tickets, and would refuse their groups.
      await confirmLead();
      reason = reasonNow();
    }

    if (!unacked.hold(delivery.lease, order, messageIdOf(ticket))) return;
    account.receive(seq, tokensOf(scored));
    if (reason !== undefined) {
      await this.#refuse(delivery, order, reason);
      return;
    }
    // Its ticket is known, or it would have been refused.
    if (table.isConsumed(order!)) {
      this.#waste(delivery, 'duplicate');
      return;
    }

    const entry = table.entry(order!);
    certificates.count(certificate);
    // A group that arrives after it was given up as stale counts as the second attempt.
    const isMissed = entry?.state === 'retry' && entry.group === undefined;
    const attempt = ticket.attempt + (isMissed && ticket.attempt === entry.attempt ? 1 : 0);
    if (entry?.state === 'issued' && attempt >= entry.attempt) {
      this.#admitOrSkip(order!, delivery);
      return;
    }
    const isEarly = order! >= table.nextOrder || attempt > entry!.attempt;
    if (isEarly && this.#early.keepGroup(order!, attempt, delivery)) return;
    this.#waste(delivery, 'duplicate');
  }

  /** @returns undefined also for a duplicate, whatever is in it. */
  #reasonAgainst(
    scored: ScoredGroup,
    order: number | undefined,
    certificate: Verdict,
  ): RefusalReason | undefined {
    const { admission, tickets, isResumed, newestVersion, vocabSize } = this.#options;
    const { attempt, issuedAtVersion } = scored.group.ticket;
    if (order !== undefined && admission.table.isConsumed(order)) return undefined;
    const isKnown = order !== undefined && this.#mayHaveBeenIssued(order, attempt);
    return refusalReason(scored, {
      ticket: isKnown ? tickets.ticketAt(order, attempt, issuedAtVersion) : undefined,
      entry: order === undefined ? undefined : admission.table.entry(order),
      isResumed,
      certificate,
      newestVersion: newestVersion(),
      vocabSize,
    });
  }

  /** Dead-letters a group. Its ticket goes to another actor if only its actor is to blame, else it is dead. */
  async #refuse(
    delivery: Delivery<ScoredGroup>,
    order: number | undefined,
    reason: RefusalReason,
  ): Promise<void> {
    const { value: scored, seq } = delivery;
    const { admission, unacked, account, audit, changes, log } = this.#options;
    const { ticket, actor } = scored.group;
    const isActorsFault = actorsFaults.has(reason);
    const entry = order === undefined ? undefined : admission.table.entry(order);
    // A power failure may lose versions, whose numbers then go to new weights. A group from before the failure names
    // the canary of the lost weights, and its actor is not to blame.
    const isFromBefore = reason === 'wrong_canary' && entry?.issuedAtVersion === undefined;
    // A refused first attempt leaves its ticket alone once the second attempt was issued.
    if (entry?.state === 'issued' && ticket.attempt >= entry.attempt) {
      if (isActorsFault) admission.table.retryOrEnd(entry.order, ticket.attempt);
      else admission.table.markDead(entry.order);
    }
    countDrop(scored, 'intake', reason);
    account.discard(seq, reason);
    log.warn({ ticketId: readableId(ticket.ticketId), actor, reason, seq }, 'scored group refused');
    unacked.forget(seq);
    await delivery.dead(reason, actor);
    changes.notify();
    if (isActorsFault && !isFromBefore) await audit.refused(actor, admission.version);
  }

  /** Processes what arrived for an attempt before it entered the table. */
  claim(order: number, attempt: number): void {
    const early = this.#early.take(order, attempt);
    if (early === undefined) {
      this.#options.changes.notify(); // its group may be among those that are not received yet
      return;
    }
    if ('group' in early) this.#admitOrSkip(order, early.group);
    else this.recordDeath(order, attempt, early.death);
  }

  /** Whether an attempt need not be published, because its group or death has already arrived. */
  isAnswered(order: number, attempt: number): boolean {
    return this.#early.has(order, attempt);
  }

  /**
   * Records that a ticket's message is in the dead-letter stream, so its group will never arrive. If
   * the group became too old during sampling, the ticket is stale and is issued once more.
   */
  recordDeath(order: number, attempt: number, death: Death): void {
    const { admission, changes, isResumed, log } = this.#options;
    const { table } = admission;
    if (!this.#mayHaveBeenIssued(order, attempt)) {
      log.debug(
        { order, attempt, ...death },
        'ignored the death of a ticket that was never issued',
      );
      return;
    }
    const entry = table.entry(order);
    const isNext = entry?.state === 'retry'; // its second attempt is about to enter the table
    const mayBeReissued = isResumed && entry !== undefined && entry.state !== 'issued';
    const isEarly = (isNext || mayBeReissued) && attempt > entry.attempt;
    if (order >= table.nextOrder || isEarly) {
      this.#early.keepDeath(order, attempt, death);
      return;
    }
    if (entry?.state !== 'issued' || entry.attempt > attempt) return; // another copy arrived first
    const { stage, reason, cause } = death;
    if (cause.kind === 'outdated') {
      const outcome = this.#retryOrEnd(order, attempt);
      countDroppedGroup(labelOf(stage), 'stale');
      log.warn({ ticketId: orderName(order), outcome, reason }, 'group became too old');
    } else if (stage === 'learner' && actorsFaults.has(reason)) {
      // An earlier session refused the group, which no checkpoint has recorded. Its second attempt may be on its way.
      table.retryOrEnd(order, attempt);
      countDroppedGroup(stage, reason);
    } else {
      table.markDead(order);
      countDroppedGroup(labelOf(stage), cause.kind === 'other' ? 'dead_letter' : cause.kind);
      log.warn({ ticketId: orderName(order), stage, reason }, 'ticket died');
      if (cause.kind === 'not_finite') this.#options.brokenPolicy.died(cause.version, table);
    }
    changes.notify();
  }

  /** Attempts that are issued and not answered yet. */
  get awaited(): Attempt[] {
    const { admission, tickets } = this.#options;
    return admission.table
      .entries()
      .filter(({ state }) => state === 'issued')
      .map(({ order, attempt }) => ({ ticketId: tickets.at(order, attempt).ticketId, attempt }));
  }

  /**
   * Whether this attempt of a ticket needs no answer any more.
   *
   * @param order of the ticket; undefined if it is none of the run's.
   */
  isFinished({ attempt }: Attempt, order: number | undefined): boolean {
    if (order === undefined) return false;
    const { table } = this.#options.admission;
    return table.isConsumed(order) || (table.entry(order)?.attempt ?? 0) > attempt;
  }

  /** Marks an awaited ticket that is in no queue as dead, so that another one replaces it. */
  recordLoss(order: number): void {
    const { admission, changes, tickets, onUnanswered } = this.#options;
    const ticket = tickets.at(order, admission.table.entry(order)!.attempt);
    admission.table.markDead(order);
    countDroppedGroup('learner', 'lost');
    onUnanswered(ticket, 'lost: it is in no queue, and nothing answered it');
    changes.notify();
  }

  /**
   * Handles a ticket that was withdrawn because an actor held it too long. After the first withdrawal it is issued
   * once more; after the second it has ended. A late answer is used if it arrives before the second attempt is issued.
   */
  recordWithdrawal(order: number, attempt: number): void {
    const { admission, changes, tickets, onUnanswered } = this.#options;
    const entry = admission.table.entry(order);
    if (entry?.state !== 'issued' || entry.attempt > attempt) return; // it has just been answered
    const ticket = tickets.at(order, attempt);
    const outcome = this.#retryOrEnd(order, attempt);
    countDroppedGroup('actor', 'overdue');
    if (outcome === 'gone')
      onUnanswered(ticket, 'withdrawn twice: each time an actor held it too long');
    changes.notify();
  }

  #retryOrEnd(order: number, attempt: number): 'reissue' | 'gone' {
    const { admission, groupStats, tickets } = this.#options;
    groupStats.givenUp(tickets.at(order, attempt));
    return admission.table.retryOrEnd(order, attempt);
  }

  /** Whether this learner, or an earlier one that crashed, may have issued this attempt. */
  #mayHaveBeenIssued(order: number, attempt: number): boolean {
    const { admission, issuedBelow } = this.#options;
    const { nextOrder } = admission.table; // the next ticket may be published already, but not acknowledged
    return attempt <= 1 && order < Math.max(nextOrder + 1, issuedBelow);
  }

  /** Drops a group, whose message the next checkpoint that covers it settles. */
  #waste({ value: scored, seq }: Delivery<ScoredGroup>, reason: string): void {
    countDrop(scored, 'intake', reason);
    this.#options.account.waste(seq, reason);
  }

  #admitOrSkip(order: number, delivery: Delivery<ScoredGroup>): void {
    const { value: scored, seq, trace } = delivery;
    const { admission, tickets, changes, groupStats, noSignal, brokenPolicy, zeroVariance } =
      this.#options;
    const isQuarantined = this.#options.audit.isQuarantined(scored.group.actor);
    const hasVariance = !isUniform(scored.scores.map(({ exactReward }) => exactReward));
    void this.#options.versionAudit.consider(scored.group);
    void this.#options.selection.solved(scored);
    // The group of a quarantined actor is refused, so it is no evidence of what others can send or learn from.
    if (!isQuarantined) {
      brokenPolicy.arrived(scored.group);
      if (hasVariance) noSignal.admitted(scored);
    }
    if (!hasVariance && zeroVariance === 'refill' && !isQuarantined) {
      admission.table.skip(order);
      groupStats.consumed(scored);
      noSignal.skipped(scored);
      tickets.recordResult(scored);
      this.#waste(delivery, 'zero_variance');
    } else {
      const sampledBy = versionsIn(scored.group.rollouts);
      const arrival = { arrivedAtVersion: admission.version, arrivedAt: Date.now(), trace };
      const group = { scored, seq, sampledBy, ...arrival };
      admission.arrive(order, group, sampledBy, scored.group.ticket.attempt);
    }
    changes.notify();
  }
}

function tokensOf({ group }: ScoredGroup): GroupTokens {
  const { promptTokens, rollouts } = group;
  return { sampled: tokenCount(group), prompt: promptTokens.length, rollouts: rollouts.length };
}

const stages = new Set(['actor', 'reward', 'learner']);

/** The metric label of the stage that gave up a message; a dead letter may name any stage. */
function labelOf(stage: string): string {
  return stages.has(stage) ? stage : 'unknown';
}
