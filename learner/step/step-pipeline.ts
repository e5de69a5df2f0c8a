import type { Changes } from '../../shared/base/changes.js';
import type { TaskScope } from '../../shared/base/task-scope.js';
import { groupsAwaitingCheckpoint } from '../../shared/broker/run-layout.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { startSpan } from '../../shared/service/telemetry/tracing.js';
import { ticketAttributes } from '../../shared/wire/ticket.js';
import { type Candidate, CheckpointTrial } from '../checkpoints/checkpoint-trial.js';
import type { Checkpointer, Consumed, PendingState } from '../checkpoints/checkpointer.js';
import type { Admission } from '../groups/admission.js';
import type { ArrivedGroup } from '../groups/check-scored-group.js';
import type { TokenAccount } from '../cost/token-account.js';
import type { Meter } from '../cost/meter.js';
import type { GroupStats } from '../groups/group-stats.js';
import { isConsumedIn } from '../tickets/ticket-table.js';
import type { UnackedGroups } from '../groups/unacked-groups.js';
import type { StepEvent } from '../report/history.js';
import {
  prefixed,
  publishLagStats,
  StepEvents,
  type StepEventsOptions,
  ticketStats,
} from '../report/step-event.js';
import type { StopConditions } from '../stop/stop-conditions.js';
import type { TicketSource } from '../tickets/ticket-source.js';
import type { ActorAudit } from '../audit/actor-audit.js';
import { damagingActors, StepDamaged } from '../audit/damage.js';
import type { LearningRateSchedule } from './learning-rate-schedule.js';
import type { MinibatchResult } from './minibatch-pass.js';
import type { CollectedStep, TrainedGroup } from './collected-step.js';
import { VersionNotFinite } from '../publish/adapter-supply.js';
import type { Publisher } from '../publish/publisher.js';
import { reportStep } from './step-report.js';

export interface StepPipelineOptions extends StepEventsOptions {
  readonly config: RunConfig;
  readonly scope: TaskScope;
  readonly admission: Admission<ArrivedGroup>;
  readonly unacked: UnackedGroups;
  readonly changes: Changes;
  readonly publisher: Publisher;
  readonly checkpointer: Checkpointer;
  readonly isCheckpointed: (step: number) => boolean;
  readonly groupStats: GroupStats;
  readonly account: TokenAccount;
  readonly meter: Pick<Meter, 'totals'>;
  readonly learningRates: LearningRateSchedule;
  readonly audit: Pick<ActorAudit, 'observe' | 'isQuarantined'>;
  readonly tickets: TicketSource;
  /** Writes a confirmed step to the history; the checkpoint of the step waits for it. */
  readonly onStep: (event: StepEvent) => Promise<void>;
  /** Versions that evaluations still need. */
  readonly versionsInUse: () => readonly number[];
}

/** The promises the next step waits for: each stage of a step runs after the same stage of the step before. */
interface Gates {
  readonly published: Promise<void>;
  readonly confirmed: Promise<unknown>;
  readonly recorded: Promise<void>;
}

interface ConfirmedStep {
  readonly event: StepEvent;
  readonly isHealthy: boolean;
  readonly candidate: Candidate | undefined; // its saved state, if one is due
}

/**
 * Runs a step through its stages once its last minibatch was sent, while the next one is being collected.
 *
 *     backend's queue:  passes, optimizer steps │ save sampling weights │ save state, every N steps
 *                                 │                       │                      │
 *                                 ▼                       ▼                      │
 *                              confirm                 publish                   │
 *                                 │                                              ▼
 *                                 └──────────────────► record ──► write or discard a saved state ──► retire
 *
 * docs/developing.md, "Who waits for whom", says what each stage waits for.
 *
 * `confirm` does not wait for `record`, so that slow writes never hold up training. A failure of a stage
 * ends the session.
 */
export class StepPipeline {
  readonly #options: StepPipelineOptions;
  readonly #stopConditions: StopConditions;
  readonly #events: StepEvents;
  readonly #trial = new CheckpointTrial();
  #newest: Gates = {
    published: Promise.resolve(),
    confirmed: Promise.resolve(),
    recorded: Promise.resolve(),
  };
  #retired: Promise<void> = Promise.resolve(); // the newest retirement of old versions
  #isRetiring = false;
  #savedStep = -Infinity; // the newest whose weights were saved
  #recordedVersion: number; // of the newest recorded step, or of the restored weights

  constructor(options: StepPipelineOptions, stopConditions: StopConditions) {
    this.#options = options;
    this.#stopConditions = stopConditions;
    this.#events = new StepEvents(options);
    this.#recordedVersion = options.admission.version;
  }

  /** Starts the clock of the first step. */
  start(): void {
    this.#events.start();
  }

  /** Accepts a step that was sent in full. Its saves are in the backend's queue when this returns. */
  take(sent: CollectedStep): void {
    const { admission, scope, publisher, checkpointer, isCheckpointed } = this.#options;
    const { version } = admission;
    const before = this.#newest;
    const published = publisher.publish(version);
    const isDue = isCheckpointed(sent.number) || this.#isQueueFilling(sent.number);
    const saved = isDue ? checkpointer.save(sent.number) : undefined;
    if (isDue) this.#savedStep = sent.number;
    const confirmed = scope.track(this.#confirm(sent, version, saved, before));
    this.#newest = {
      published: scope.track(this.#awaitPublished(sent, version, published, before)),
      confirmed,
      recorded: scope.track(this.#record(confirmed, before)),
    };
  }

  /** Resolves when every accepted step has passed all stages. */
  async drained(): Promise<void> {
    await Promise.all([this.#newest.published, this.#newest.confirmed, this.#newest.recorded]);
    await this.#retired;
  }

  /**
   * Makes the newest weights the run's checkpoint. If the last step was unhealthy or the training has
   * diverged, the previous checkpoint stays.
   */
  async finish(): Promise<void> {
    const { admission, checkpointer, log } = this.#options;
    const { step } = admission;
    if (this.#stopConditions.hasDiverged) await this.#trial.end();
    else if (this.#trial.isHealthy) {
      const state = checkpointer.save(step);
      await this.#trial.end({ step, state, consumed: this.#consumed() });
    } else log.warn({ step, checkpoint: checkpointer.writtenStep }, 'last steps not saved');
  }

  /**
   * Whether a checkpoint is due because the groups that wait for one fill the queue of scored groups. Once that queue
   * is full, no group arrives any more, so no step and no checkpoint would ever follow. Of the room that is always
   * there for them, the groups may take a quarter. They may take half while a saved state waits for its verdict: it
   * becomes the checkpoint when the step after it is judged.
   */
  #isQueueFilling(step: number): boolean {
    const { unacked, admission } = this.#options;
    const waiting = unacked.covered((order) => admission.table.isConsumed(order)).length;
    const { least: room } = groupsAwaitingCheckpoint;
    return waiting >= room / 2 || (waiting >= room / 4 && step - this.#savedStep >= 3);
  }

  async #awaitPublished(
    { number: step }: CollectedStep,
    version: number,
    published: Promise<void>,
    before: Gates,
  ): Promise<void> {
    const { admission, changes } = this.#options;
    const becomesVisible = published.then(
      () => {
        admission.recordPublished(version);
        this.#exportLag();
        changes.notify();
      },
      (caught: unknown) => {
        if (!(caught instanceof VersionNotFinite)) throw caught;
        this.#stopConditions.giveUp(step, caught.message);
      },
    );
    await Promise.all([becomesVisible, before.published]);
  }

  /** @returns undefined if the training has diverged in the meantime, so that the step does not count. */
  async #confirm(
    sent: CollectedStep,
    version: number,
    saved: PendingState | undefined,
    before: Gates,
  ): Promise<ConfirmedStep | undefined> {
    await before.confirmed;
    const { config, admission, audit } = this.#options;
    const { number: step, sentGroups: trained } = sent;
    const startedFrom = version - 1;
    const passed = await Promise.all(sent.results);
    const optimized = await Promise.all(sent.optimStepMetrics);
    if (this.#stopConditions.hasDiverged) {
      await saved?.discard();
      return undefined;
    }
    const { rewinds } = admission;
    const { maxStepsOffPolicy } = config;
    const bound = { version: startedFrom, maxStepsOffPolicy, rewinds };
    const fleet = await audit.observe(bound, trained, passed);
    const liars = damagingActors(trained, passed, (actor) => audit.isQuarantined(actor));
    if (liars.length > 0) {
      await Promise.all([saved?.discard(), this.#trial.end()]);
      throw new StepDamaged(step, liars);
    }
    const report = { ...reportStep(config, startedFrom, trained, passed, rewinds), ...fleet };
    const masked = maskedTokens(passed) + (report['stale_tokens/count'] ?? 0);
    this.#markConfirmed(trained, masked);
    recordTrainSpans(config.run, { step, version: startedFrom }, trained);
    const event = this.#events.make(
      { step: admission.step, version: admission.confirmedVersion },
      {
        ...this.#options.groupStats.take(),
        ...report,
        ...prefixed('groups', admission.table.counts),
        ...publishLagStats.record(admission.publishLag),
        ...ticketStats.record(admission.limiter),
      },
      optimized,
    );
    const { seconds = 0, idle_seconds: idleSeconds = 0 } = event.metrics;
    admission.limiter.adaptLimit({ seconds, idleSeconds });
    admission.limiter.adaptBound(event.metrics);
    const candidate = saved && { step, state: saved, consumed: this.#consumed() };
    return { event, isHealthy: this.#stopConditions.checkStep(event), candidate };
  }

  async #record(confirmed: Promise<ConfirmedStep | undefined>, before: Gates): Promise<void> {
    const step = await confirmed;
    await before.recorded;
    if (step === undefined) return;
    // The history comes first: a checkpoint ahead of it would leave a gap that no restart fills.
    await this.#options.onStep(step.event);
    this.#recordedVersion = step.event.version;
    await this.#trial.settle(step.isHealthy, step.candidate);
    this.#retire();
  }

  #markConfirmed(trained: readonly TrainedGroup[], masked: number): void {
    const { admission, groupStats, account, tickets, changes } = this.#options;
    admission.confirmStep();
    this.#exportLag();
    account.mask(masked);
    for (const { group } of trained) {
      groupStats.consumed(group.scored);
      account.train(group.seq);
      tickets.recordResult(group.scored);
    }
    tickets.endStep();
    changes.notify();
  }

  #exportLag(): void {
    publishLagStats.record(this.#options.admission.publishLag);
  }

  /**
   * Captures what the newest confirmed step has consumed.
   *
   * @returns a function to call when the checkpoint is written; it adds the problems of the tickets issued since.
   */
  #consumed(): () => Consumed {
    const { admission, unacked, learningRates, tickets, account, meter, changes } = this.#options;
    const { step, confirmedVersion: version, rewindsInReach: rewinds } = admission;
    const progress = learningRates.progress(step);
    const table = admission.table.state;
    const messages = unacked.covered((order) => admission.table.isConsumed(order));
    const { tokens, counted, settle } = account.capture(messages.map(({ lease }) => lease.seq));
    const { results } = tickets;
    return () => {
      const { nextOrder } = admission.table;
      const decided = tickets.checkpoint({ nextOrder, isConsumed: isConsumedIn(table) }, results);
      const onWritten = () => {
        decided.written();
        settle();
        changes.notify(); // tickets that waited for the checkpoint may be issued now
      };
      const { state: curriculum } = decided;
      const usage = { tokens, counted, meter: meter.totals };
      return { step, version, progress, table, rewinds, curriculum, usage, messages, onWritten };
    };
  }

  /** Starts deleting old versions; not awaited, since backends may be slow. The next call deletes what is left. */
  #retire(): void {
    const { admission, publisher, scope, versionsInUse } = this.#options;
    if (this.#isRetiring) return;
    this.#isRetiring = true;
    // A version is evaluated, if that is due, only once its step is recorded.
    const next = this.#recordedVersion + 1;
    const unrecorded = Array.from({ length: admission.version + 1 - next }, (_, i) => next + i);
    const ofTickets = admission.table
      .entries()
      .flatMap(({ issuedAtVersion }) => issuedAtVersion ?? []);
    this.#retired = scope.track(
      publisher.retire([...ofTickets, ...versionsInUse(), ...unrecorded]).finally(() => {
        this.#isRetiring = false;
      }),
    );
  }
}

/** Tokens that a mask has left out of the loss. */
function maskedTokens(results: readonly MinibatchResult[]): number {
  const sides = results.flatMap(({ corrected }) => corrected ?? []).map(({ sides }) => sides);
  return sides.reduce((sum, ofRollout) => sum + ofRollout.filter((side) => side !== 0).length, 0);
}

/** Ends the trace of each group that a step has trained on, with a span from its arrival until now. */
function recordTrainSpans(
  run: string,
  { step, version }: { readonly step: number; readonly version: number }, // the version that trained
  trained: readonly TrainedGroup[],
): void {
  for (const { group, staleness } of trained) {
    const { ticket } = group.scored.group;
    startSpan('train', () => ({
      ticket: { run, ticketId: ticket.ticketId },
      parent: group.trace,
      startedAt: group.arrivedAt,
      attributes: {
        ...ticketAttributes(ticket),
        'offbeat.step': step,
        'offbeat.version': version,
        'offbeat.staleness': staleness,
      },
    }))?.end();
  }
}
