import { Counter, Gauge } from 'prom-client';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { ActorAudit } from './actor-audit.js';
import type { Admission } from '../groups/admission.js';
import { isConsumedIn } from '../groups/ticket-table.js';
import type { Changes } from '../../shared/base/changes.js';
import type { Checkpointer, Consumed } from '../checkpoints/checkpointer.js';
import { CheckpointTrial } from '../checkpoints/checkpoint-trial.js';
import { GiveUp, type GivenUp, type Watches } from '../stop/give-up.js';
import type { StepEvent } from '../report/history.js';
import type { IdleCause } from './idle-clock.js';
import { drop, type ArrivedGroup } from '../groups/group-receiver.js';
import { damagingActors, StepDamaged } from './damage.js';
import { OpenStep, type OpenStepOptions } from './open-step.js';
import { VersionNotFinite, type Publisher } from './publisher.js';
import { StepEvents } from '../report/step-event.js';
import { reportStep, type TrainedGroup } from './step-report.js';
import { recordTrainSpans } from './train-spans.js';
import type { GroupStats } from '../groups/group-stats.js';
import type { TicketSource } from '../tickets/ticket-source.js';
import type { UnackedGroups } from '../groups/unacked-groups.js';

const stepsTrained = new Counter({
  name: 'rl_steps_total',
  help: 'Steps that the backend has confirmed; each trains one batch and makes one version.',
});
const optimizerSteps = new Counter({
  name: 'rl_optimizer_steps_total',
  help: 'Optimizer steps that the backend has confirmed, several to a step if it has substeps.',
});
const lagSteps = new Gauge({
  name: 'rl_publish_lag_steps',
  help: 'Confirmed steps whose weights have not reached the actors yet.',
});

export interface TrainingOptions extends OpenStepOptions, Watches {
  readonly admission: Admission<ArrivedGroup>;
  readonly unacked: UnackedGroups;
  readonly changes: Changes;
  readonly publisher: Publisher;
  readonly checkpointer: Checkpointer;
  readonly checkpointEverySteps: number;
  readonly groupStats: GroupStats;
  readonly audit: Pick<ActorAudit, 'observe' | 'isQuarantined' | 'signal' | 'reason'>;
  readonly tickets: TicketSource;
  /** What others have to tell with each step, by the names of `metrics.jsonl`. */
  readonly surroundings: () => Readonly<Record<string, number>>;
  /** Told of every confirmed step. */
  readonly onStep: (event: StepEvent) => Promise<void>;
  /** Versions that someone else still needs. */
  readonly versionsInUse: () => readonly number[];
  readonly log: Logger;
}

/**
 * The training loop: cuts minibatches as soon as their groups are here, sends each to the backend
 * without awaiting the one before, and the optimizer step behind the last of each substep. What comes
 * back is dealt with in the order of the steps while the next one is being collected.
 */
export class Training {
  readonly #options: TrainingOptions;
  #open: OpenStep;
  #confirmations: Promise<void> = Promise.resolve();
  #publications: Promise<void> = Promise.resolve();
  #accounts: Promise<void> = Promise.resolve(); // what is written about confirmed steps
  #retired: Promise<void> = Promise.resolve(); // old versions, the last time
  #isRetiring = false;
  readonly #events: StepEvents;
  readonly #trial = new CheckpointTrial();
  readonly #giveUp: GiveUp;

  constructor(options: TrainingOptions) {
    this.#options = options;
    this.#open = new OpenStep(options, options.admission.step + 1);
    this.#events = new StepEvents(options);
    this.#giveUp = new GiveUp(options);
  }

  /**
   * Trains until the run has its steps, `stop` aborts or no group has variance any more; then finishes
   * the optimizer steps that the backend has in full, gives up what else it was sent, publishes and
   * checkpoints, unless the last step was unhealthy. Should it diverge, it ends at once. Either way the last
   * checkpoint from before stays as it is.
   *
   * @returns why it was given up, if that is what ended it.
   * @throws what the backend or the broker could not do; `UserError` if the policy is broken untrained.
   */
  async run(stop: AbortSignal): Promise<GivenUp | undefined> {
    const { admission, changes, idle, scope } = this.#options;
    const giveUp = this.#giveUp;
    const until = AbortSignal.any([stop, scope.signal, giveUp.signal]);
    this.#events.start();
    while (!until.aborted && !admission.isComplete) {
      this.#refuseStale();
      // With two steps in its queue the backend has enough to do, and a failure costs no more.
      const minibatch = admission.unconfirmedSteps < 2 ? admission.cut() : undefined;
      if (minibatch === undefined) {
        idle.waitFor(this.#idleCause());
        await changes.next(until);
        continue;
      }
      await this.#open.take(minibatch);
      if (minibatch.isLastOfStep) this.#close();
    }
    idle.waitFor(undefined);
    scope.signal.throwIfAborted();

    if (!stop.aborted && !admission.isComplete) giveUp.conclude(admission);
    if (!giveUp.hasDiverged) this.#cutShort();
    await this.#confirmations;
    await this.#publications;
    await this.#accounts;
    await this.#retired;
    const { checkpointer, log } = this.#options;
    const { step } = admission;
    if (giveUp.hasDiverged) await this.#trial.end();
    else if (this.#trial.isHealthy) {
      const state = checkpointer.save(step);
      await this.#trial.end({ step, state, consumed: this.#consumed() });
    } else log.warn({ step, checkpoint: checkpointer.writtenStep }, 'the last steps are not saved');
    return giveUp.verdict(checkpointer.writtenStep);
  }

  /** Makes a shorter step of what the optimizer steps so far have used, if it is anything. */
  #cutShort(): void {
    const substeps = this.#open.cutShort();
    this.#options.admission.cutShort(substeps);
    if (substeps > 0) this.#close();
  }

  /** Puts publication and checkpoint into the backend's queue, behind the optimizer steps. */
  #close(): void {
    const { config, admission, scope, publisher, checkpointer, changes } = this.#options;
    const { trained, results, optimized } = this.#open;
    const step = admission.step + admission.unconfirmedSteps;
    this.#open = new OpenStep(this.#options, step + 1);
    const { version } = admission;
    const startedFrom = version - 1;

    const published = scope.watch(
      publisher.publish(version).then(
        () => {
          admission.publish(version);
          this.#exportLag();
          changes.notify();
        },
        (caught: unknown) => {
          if (!(caught instanceof VersionNotFinite)) throw caught;
          this.#giveUp.refuse(step, caught.message);
        },
      ),
    );
    const isDue = step % this.#options.checkpointEverySteps === 0;
    const saved = isDue ? checkpointer.save(step) : undefined;

    this.#publications = scope.watch(this.#publications.then(() => published));
    this.#confirmations = scope.watch(
      this.#confirmations.then(async () => {
        const passed = await Promise.all(results);
        const optimizer = await Promise.all(optimized);
        if (this.#giveUp.hasDiverged) return saved?.discard();
        const { audit } = this.#options;
        const { rewinds } = admission;
        const fleet = await audit.observe({ version: startedFrom, rewinds }, trained, passed);
        const liars = damagingActors(trained, passed, (actor) => audit.isQuarantined(actor));
        if (liars.length > 0) {
          await Promise.all([saved?.discard(), this.#trial.end()]);
          throw new StepDamaged(step, liars);
        }
        const report = { ...reportStep(config, startedFrom, trained, passed, rewinds), ...fleet };
        this.#confirm(trained, optimizer.length);
        recordTrainSpans(config.run, { step, version: startedFrom }, trained);
        const event = this.#events.make(report, optimizer);
        const candidate = saved && { step, state: saved, consumed: this.#consumed() };
        const isHealthy = this.#giveUp.judge(event);
        this.#accounts = scope.watch(
          this.#accounts.then(async () => {
            // The history first: a checkpoint that is ahead of it would leave a gap that no restart fills.
            await this.#options.onStep(event);
            await this.#trial.judged(isHealthy, candidate);
            this.#retire();
          }),
        );
      }),
    );
  }

  #confirm(trained: readonly TrainedGroup[], substeps: number): void {
    const { admission, groupStats, tickets, changes } = this.#options;
    admission.confirmStep();
    stepsTrained.inc();
    optimizerSteps.inc(substeps);
    this.#exportLag();
    for (const { group } of trained) {
      groupStats.trained(group.scored);
      tickets.consumed(group.scored);
    }
    changes.notify();
  }

  #exportLag(): void {
    lagSteps.set(this.#options.admission.publishLag);
  }

  #refuseStale(): void {
    const { admission, audit, changes, log } = this.#options;
    const isBarred = ({ scored }: ArrivedGroup) => audit.isQuarantined(scored.group.actor);
    for (const { order, group, outcome } of admission.refuseStale(isBarred)) {
      const reason = isBarred(group) ? 'quarantined' : 'stale';
      drop(group.scored, 'cut', reason);
      log.warn({ order, outcome, reason, sampledBy: group.sampledBy }, 'refused a group');
      changes.notify();
    }
  }

  #idleCause(): IdleCause {
    const { admission } = this.#options;
    const arrived = admission.table.entries().filter(({ state }) => state === 'arrived').length;
    if (arrived >= admission.minibatchSize) return 'window';
    return admission.publishLag > 0 && admission.room === 0 ? 'version' : 'groups';
  }

  /** What the weights of the newest confirmed step have consumed, as of now, for whenever it is written. */
  #consumed(): () => Consumed {
    const { admission, unacked, learningRates, tickets, changes } = this.#options;
    const { step, confirmedVersion: version, rewindsInReach: rewinds } = admission;
    const progress = learningRates.progress(step);
    const table = admission.table.state;
    const messages = unacked.covered((order) => admission.table.isConsumed(order));
    const { tried } = tickets;
    return () => {
      const { nextOrder } = admission.table;
      const decided = tickets.checkpoint({ nextOrder, isConsumed: isConsumedIn(table) }, tried);
      const onWritten = () => {
        decided.written();
        changes.notify(); // tickets that waited for it may be issued now
      };
      const { state: curriculum } = decided;
      return { step, version, progress, table, rewinds, curriculum, messages, onWritten };
    };
  }

  /** Nobody waits for it: a backend may take long to delete, and the next step's call finds the rest. */
  #retire(): void {
    const { publisher, scope } = this.#options;
    if (this.#isRetiring) return;
    this.#isRetiring = true;
    this.#retired = scope.watch(
      publisher.retire(this.#versionsInUse()).finally(() => {
        this.#isRetiring = false;
      }),
    );
  }

  #versionsInUse(): number[] {
    const { admission, versionsInUse } = this.#options;
    const ofTickets = admission.table
      .entries()
      .flatMap(({ issuedAtVersion }) => issuedAtVersion ?? []);
    return [...ofTickets, ...versionsInUse()];
  }
}
