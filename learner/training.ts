import { Counter, Gauge } from 'prom-client';
import { UserError } from '../shared/errors.js';
import type { Logger } from '../shared/telemetry/logger.js';
import type { TrainingRun } from '../shared/tinker/training-run.js';
import type { RunConfig } from '../shared/wire/run-config.js';
import type { Admission } from './admission.js';
import type { Changes } from './changes.js';
import type { Checkpointer, Consumed } from './checkpointer.js';
import type { Failure } from './failure.js';
import { handled } from './handled.js';
import type { StepEvent } from './history.js';
import type { IdleCause, IdleClock } from './idle-clock.js';
import { drop, type ArrivedGroup } from './intake.js';
import { sendMinibatch, type MinibatchResult } from './minibatch-pass.js';
import type { Publisher } from './publisher.js';
import { reportStep, type TrainedGroup } from './step-report.js';
import type { Tally } from './tally.js';
import type { Unsettled } from './unsettled.js';

const stepsTrained = new Counter({ name: 'rl_steps_total', help: 'Optimizer steps confirmed' });
const publishLag = new Gauge({
  name: 'rl_publish_lag_steps',
  help: 'Confirmed optimizer steps whose weights have not reached the actors yet',
});

export interface TrainingOptions {
  readonly config: RunConfig;
  readonly run: TrainingRun;
  readonly admission: Admission<ArrivedGroup>;
  readonly unsettled: Unsettled;
  readonly changes: Changes;
  readonly publisher: Publisher;
  readonly checkpointer: Checkpointer;
  readonly checkpointEverySteps: number;
  readonly tally: Tally;
  readonly idle: IdleClock;
  readonly failure: Failure;
  /** Told of every confirmed step. */
  readonly onStep: (event: StepEvent) => Promise<void>;
  /** Versions that someone else still needs. */
  readonly versionsInUse: () => readonly number[];
  readonly log: Logger;
}

/** A step whose minibatches are being collected. */
interface OpenStep {
  readonly trained: TrainedGroup[];
  readonly results: Promise<MinibatchResult>[];
}

/**
 * The training loop: cuts minibatches as soon as their groups are here, sends each to the backend
 * without awaiting the one before, and the optimizer step behind the last. What comes back is dealt
 * with in the order of the steps while the next one is being collected.
 */
export class Training {
  readonly #options: TrainingOptions;
  #open: OpenStep = { trained: [], results: [] };
  #confirmations: Promise<void> = Promise.resolve();
  #publications: Promise<void> = Promise.resolve();
  #accounts: Promise<void> = Promise.resolve(); // what is written about confirmed steps
  #stepEndedAt = performance.now();
  #idleBefore = 0;

  constructor(options: TrainingOptions) {
    this.#options = options;
  }

  /**
   * Trains until the run has its steps or `stop` aborts; then finishes the steps that the backend has
   * in full, gives up the one in progress, publishes and checkpoints.
   *
   * @throws what the backend or the broker could not do.
   */
  async run(stop: AbortSignal): Promise<void> {
    const { admission, changes, idle, failure } = this.#options;
    const until = AbortSignal.any([stop, failure.signal]);
    this.#stepEndedAt = performance.now();
    this.#idleBefore = totalSeconds(idle);
    while (!until.aborted && !admission.isComplete) {
      this.#refuseStale();
      // With two steps in its queue the backend has enough to do, and a failure costs no more.
      const minibatch = admission.unconfirmedSteps < 2 ? admission.cut() : undefined;
      if (minibatch === undefined) {
        idle.waitFor(this.#idleCause());
        await changes.next(until);
        continue;
      }
      const { groups, staleness, isLastOfStep } = minibatch;
      const { result } = await sendMinibatch(
        this.#options.run,
        this.#options.config,
        groups.map(({ scored }) => scored),
        staleness,
      );
      this.#open.results.push(failure.watch(idle.during(result)));
      groups.forEach((group, i) => this.#open.trained.push({ group, staleness: staleness[i]! }));
      if (isLastOfStep) this.#close();
    }
    idle.waitFor(undefined);
    failure.signal.throwIfAborted();

    admission.abandonStep();
    await this.#confirmations;
    await this.#publications;
    await this.#accounts;
    await this.#options.checkpointer.save(admission.step)(this.#consumed());
  }

  /** Puts optimizer step, publication and checkpoint into the backend's queue, in this order. */
  #close(): void {
    const { run, config, admission, idle, failure, publisher, checkpointer, changes } =
      this.#options;
    const { trained, results } = this.#open;
    this.#open = { trained: [], results: [] };
    const startedFrom = admission.version - 1;
    const { version } = admission;
    const step = admission.step + admission.unconfirmedSteps;

    const optimized = idle.during(run.optimStep(config.adam));
    const published = handled(
      publisher.publish(version).then(() => {
        admission.publish(version);
        changes.notify();
      }),
    );
    const isDue = step % this.#options.checkpointEverySteps === 0;
    const checkpoint = isDue ? checkpointer.save(step) : undefined;

    this.#publications = failure.watch(this.#publications.then(() => published));
    this.#confirmations = failure.watch(
      this.#confirmations.then(async () => {
        const passed = await Promise.all(results);
        const optimizer = await optimized;
        const report = reportStep(config.loss, startedFrom, trained, passed);
        assertConverges(step, report, config);
        this.#confirm(trained);
        const written = checkpoint?.(this.#consumed());
        const event = this.#event({ ...report, ...prefixed('optim', optimizer) });
        this.#accounts = failure.watch(
          this.#accounts.then(async () => {
            await this.#options.onStep(event);
            await written;
            await publisher.retire(this.#versionsInUse());
          }),
        );
      }),
    );
  }

  #confirm(trained: readonly TrainedGroup[]): void {
    const { admission, unsettled, tally, changes } = this.#options;
    admission.confirmStep();
    stepsTrained.inc();
    publishLag.set(admission.confirmedVersion - admission.publishedVersion);
    for (const { group } of trained) {
      unsettled.consume(group.seq);
      tally.trained(group.scored);
    }
    changes.notify();
  }

  /** What is to be told of the step that was just confirmed. */
  #event(report: Record<string, number>): StepEvent {
    const { admission, idle, tally, config, log } = this.#options;
    const { step, confirmedVersion: version, publishedVersion } = admission;
    const now = performance.now();
    const idleNow = totalSeconds(idle);
    const seconds = (now - this.#stepEndedAt) / 1_000;
    const metrics: Record<string, number> = {
      ...tally.take(),
      ...report,
      ...prefixed('groups', admission.book.counts),
      ...prefixed('idle', idle.seconds), // since this learner started, by cause
      idle_seconds: idleNow - this.#idleBefore,
      seconds,
      learning_rate: config.adam.learningRate,
      publish_lag: version - publishedVersion,
    };
    this.#stepEndedAt = now;
    this.#idleBefore = idleNow;
    const finite = Object.entries(metrics).filter(([, value]) => Number.isFinite(value));
    log.info({ step, version, correct: metrics['env/all/correct'], seconds }, 'step trained');
    const metricsNow = Object.fromEntries(finite);
    return { v: 1, at: Date.now(), kind: 'step', step, version, metrics: metricsNow };
  }

  #refuseStale(): void {
    const { admission, unsettled, changes, log } = this.#options;
    for (const { order, group, outcome } of admission.refuseStale()) {
      drop(group.scored, 'cut', 'stale');
      // A first one stays unconsumed until its second attempt is out, so that a crash loses neither.
      if (outcome === 'gone') unsettled.consume(group.seq);
      log.warn({ order, outcome, sampledBy: group.sampledBy }, 'refused a stale group');
      changes.notify();
    }
  }

  #idleCause(): IdleCause {
    const { admission, config } = this.#options;
    const arrived = admission.book.entries().filter(({ state }) => state === 'arrived').length;
    if (arrived >= config.groupsPerBatch / config.numMinibatches) return 'window';
    const isBehind = admission.publishedVersion < admission.confirmedVersion;
    return isBehind && admission.room === 0 ? 'version' : 'groups';
  }

  /** What the weights of the newest confirmed step have consumed, as of now. */
  #consumed(): Consumed {
    const { admission, unsettled } = this.#options;
    return {
      step: admission.step,
      version: admission.confirmedVersion,
      book: admission.book.state,
      messages: unsettled.consumedSoFar(),
    };
  }

  #versionsInUse(): number[] {
    const { admission, versionsInUse } = this.#options;
    const ofTickets = admission.book
      .entries()
      .flatMap(({ issuedAtVersion }) => issuedAtVersion ?? []);
    return [...ofTickets, ...versionsInUse()];
  }
}

/** @throws {UserError} once the logprobs are no numbers any more: no later step can mend that. */
function assertConverges(step: number, report: Record<string, number>, config: RunConfig): void {
  if (Number.isFinite(report['kl_sample_train_v2'])) return;
  throw new UserError(
    `training diverged at step ${step}: the policy's logprobs are not finite; the last checkpoint is ` +
      `from before, so start a new run with a --learning-rate below ${config.adam.learningRate}`,
  );
}

function totalSeconds(idle: IdleClock): number {
  return Object.values(idle.seconds).reduce((sum, seconds) => sum + seconds, 0);
}

function prefixed(prefix: string, values: Readonly<Record<string, number>>) {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [`${prefix}/${name}`, value]),
  );
}
