import { Counter } from 'prom-client';
import type { Changes } from '../../shared/base/changes.js';
import type { TaskScope } from '../../shared/base/task-scope.js';
import { mostUnconfirmedSteps } from '../../shared/rl/capacity.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { Example } from '../../shared/tasks/examples/example.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import type { GroupCounts } from '../../shared/wire/ledger.js';
import { type Candidate, CheckpointTrial } from '../checkpoints/checkpoint-trial.js';
import type { Checkpointer, PendingState } from '../checkpoints/checkpointer.js';
import type { Meter } from '../cost/meter.js';
import type { TokenAccount } from '../cost/token-account.js';
import type { StepEvent } from '../report/history.js';
import { StepEvents, type StepEventsOptions } from '../report/step-event.js';
import type { SupervisedResult } from '../report/summary.js';
import type { Position, TrainingLoop } from '../step/training.js';
import type { LearningRateSchedule } from '../step/learning-rate-schedule.js';
import { VersionNotFinite } from '../publish/adapter-supply.js';
import type { Publisher } from '../publish/publisher.js';
import type { RunEnding } from '../stop/stop-conditions.js';
import type { BatchPlan } from './batch-plan.js';
import {
  countedTokens,
  nll,
  passedExamples,
  supervisedData,
  supervisedStats,
  together,
  type PassedExamples,
} from './supervised-pass.js';

const trainedExamples = new Counter({
  name: 'rl_sft_examples_total',
  help: 'Examples that the backend has confirmed to have trained on.',
});

export interface SupervisedOptions extends StepEventsOptions {
  readonly config: Pick<RunConfig, 'numMinibatches'>;
  readonly run: Pick<TrainingRun, 'forward' | 'forwardBackward' | 'optimStep'>;
  readonly account: Pick<TokenAccount, 'learn' | 'totals'>;
  readonly meter: Pick<Meter, 'totals'>;
  readonly plan: BatchPlan;
  readonly heldOut: readonly Example[];
  readonly start: Point;
  readonly maxSteps: number; // of the run, by `--max-steps`; Infinity: until the examples end
  readonly isCheckpointed: (step: number) => boolean;
  /** Steps between two evaluations, for each of which the version is published; 0: none. */
  readonly evaluateEverySteps: number;
  /** Steps between two measurements of the held-out examples; 0: only before the first step and after the last. */
  readonly measureEverySteps: number;
  readonly publisher: Pick<Publisher, 'publish' | 'retire'>;
  readonly checkpointer: Pick<Checkpointer, 'save' | 'writtenStep'>;
  readonly learningRates: Pick<LearningRateSchedule, 'settingsFor' | 'progress'>;
  readonly changes: Changes;
  readonly scope: TaskScope;
  /** Writes a confirmed step to the history; the checkpoint of the step waits for it. */
  readonly onStep: (event: StepEvent) => Promise<void>;
  /** Versions that evaluations still need. */
  readonly versionsInUse: () => readonly number[];
  readonly log: Logger;
}

/** How far the training is. */
interface Point {
  readonly step: number; // that the weights have
  readonly version: number; // under which they are published
  readonly place: number; // of the next example
  readonly leftOut: number; // places before it whose problems were left out
}

/** A step that the backend has in full, and where it ends. */
interface SentStep extends Point {
  readonly passes: readonly Promise<PassedExamples>[];
  readonly heldOut: Promise<PassedExamples> | undefined; // before the step
  readonly optimized: Promise<Record<string, number>>;
  readonly published: Promise<void> | undefined;
  readonly saved: PendingState | undefined;
}

/**
 * Trains on examples by cross-entropy, as `Training` trains on sampled groups: the same backend, schedule, checkpoints
 * and history. There are no tickets. A batch is known beforehand, so each step is sent while the one before is in the
 * backend; a version is published only where something samples with it.
 */
export class SupervisedTraining implements TrainingLoop {
  readonly #options: SupervisedOptions;
  readonly #events: StepEvents;
  readonly #trial = new CheckpointTrial();
  readonly #over = new AbortController(); // aborts when the run is given up
  #sent: Point; // after the steps that the backend has
  #confirmed: Point;
  #unconfirmed = 0;
  #newest: Promise<void> = Promise.resolve(); // the newest step's confirmation and record
  #publishedVersion: number;
  #retired: Promise<void> = Promise.resolve();
  #failure: { readonly step: number; readonly reason: string } | undefined;
  #result: SupervisedResult;

  constructor(options: SupervisedOptions) {
    const { start } = options;
    this.#options = options;
    this.#events = new StepEvents(options);
    this.#sent = this.#confirmed = start;
    this.#publishedVersion = start.version;
    this.#result = this.#resultAt(start);
  }

  get position(): Position {
    const { step, version } = this.#confirmed;
    return { step, version, isComplete: this.#isComplete, counts: countsAt(this.#confirmed) };
  }

  /** What was trained in all, also by earlier sessions, and how well this one has found the examples known. */
  get result(): SupervisedResult {
    return this.#result;
  }

  async run(stop: AbortSignal): Promise<RunEnding | undefined> {
    const { scope, changes, checkpointer } = this.#options;
    const until = AbortSignal.any([stop, scope.signal, this.#over.signal]);
    this.#events.start();
    while (!until.aborted && !this.#isComplete) {
      if (this.#unconfirmed < mostUnconfirmedSteps) this.#take(this.#send());
      else await changes.next(until);
    }
    await this.#newest;
    scope.signal.throwIfAborted();
    if (this.#failure === undefined) await this.#finish(stop);
    else await this.#trial.end();
    await this.#retired;
    return (
      this.#failure && {
        reason: 'diverged',
        divergence: { ...this.#failure, checkpointStep: checkpointer.writtenStep },
      }
    );
  }

  get #isComplete(): boolean {
    return this.#isLast(this.#sent);
  }

  /** Whether nothing is left to train. The examples end a run, not the steps that they were expected to take. */
  #isLast({ step, place }: Point): boolean {
    const { plan, maxSteps } = this.#options;
    return step >= maxSteps || plan.endOf(place) === place;
  }

  /** Sends the next step whole. All its calls are in the backend's queue, in order, when this returns. */
  #send(): SentStep {
    const { plan, run, config, learningRates, checkpointer, idle } = this.#options;
    const { evaluateEverySteps, measureEverySteps, isCheckpointed } = this.#options;
    const before = this.#sent;
    const place = plan.endOf(before.place);
    const batch = plan.examplesIn(before.place, place);
    const leftOut = place - before.place - batch.length;
    const sent: Point = {
      step: before.step + 1,
      version: before.version + 1,
      place,
      leftOut: before.leftOut + leftOut,
    };
    const { step, version } = sent;
    if (leftOut > 0) this.#options.log.warn({ step, problems: leftOut }, 'problems left out');
    const weight = 1 / Math.max(1, countedTokens(batch));
    const isMeasured =
      step === 1 || (measureEverySteps > 0 && (step - 1) % measureEverySteps === 0);
    const heldOut = isMeasured ? this.#measure() : undefined;
    const passes = parts(batch, config.numMinibatches).map((examples) => {
      const data = supervisedData(examples, weight);
      const passed = idle.during(run.forwardBackward(data, 'cross_entropy', atTemperature1));
      return this.#track(passed.then((result) => passedExamples(examples, result)));
    });
    const adam = learningRates.settingsFor(step);
    const optimized = this.#track(
      idle
        .during(run.optimStep(adam))
        .then((metrics) => ({ ...metrics, learning_rate: adam.learningRate })),
    );
    const isPublished =
      evaluateEverySteps > 0 && step % evaluateEverySteps === 0 && !this.#isLast(sent);
    const published = isPublished ? this.#publish(step, version) : undefined;
    const saved = isCheckpointed(step) ? checkpointer.save(step) : undefined;
    this.#sent = sent;
    return { ...sent, passes, heldOut, optimized, published, saved };
  }

  #measure(): Promise<PassedExamples> | undefined {
    const { run, idle, heldOut } = this.#options;
    if (heldOut.length === 0) return undefined;
    const data = supervisedData(heldOut, 0);
    const passed = idle.during(run.forward(data, 'cross_entropy', atTemperature1));
    return this.#track(passed.then((result) => passedExamples(heldOut, result)));
  }

  #publish(step: number, version: number): Promise<void> {
    this.#publishedVersion = version;
    const published = this.#options.publisher.publish(version).catch((caught: unknown) => {
      if (!(caught instanceof VersionNotFinite)) throw caught;
      this.#giveUp(step, caught.message);
    });
    return this.#track(published);
  }

  #take(sent: SentStep): void {
    const before = this.#newest;
    this.#unconfirmed += 1;
    this.#newest = this.#track(this.#confirm(sent, before));
  }

  async #confirm(sent: SentStep, before: Promise<void>): Promise<void> {
    const { changes } = this.#options;
    const { step, version, place, leftOut, saved } = sent;
    const trained = together(await Promise.all(sent.passes));
    const optimized = await sent.optimized;
    const heldOut = await sent.heldOut;
    await before;
    if (this.#failure === undefined && !Number.isFinite(trained.negativeLogprob)) {
      this.#giveUp(step, 'logprobs are not finite');
    }
    if (this.#failure !== undefined) {
      await saved?.discard();
      return;
    }
    this.#confirmed = { step, version, place, leftOut };
    this.#unconfirmed -= 1;
    trainedExamples.inc(trained.examples);
    this.#options.account.learn(trained.tokens + trained.promptTokens);
    changes.notify();
    const result = this.#resultAt(this.#confirmed);
    const report = supervisedStats.record({ trained, heldOut, epochs: result.epochs });
    this.#result = {
      ...this.#result,
      ...result,
      nll: nll(trained),
      ...(heldOut !== undefined && { heldOutNll: nll(heldOut) }),
    };
    const event = this.#events.make({ step, version }, report, [optimized]);
    const candidate = saved && { step, state: saved, consumed: this.#consumed() };
    await sent.published;
    await this.#options.onStep(event);
    await this.#trial.settle(true, candidate);
    if (sent.published !== undefined) this.#retire();
  }

  /** Publishes and saves the last weights, and measures them on the examples that were held out. */
  async #finish(stop: AbortSignal): Promise<void> {
    const { checkpointer } = this.#options;
    const { step, version } = this.#confirmed;
    const heldOut = stop.aborted || step === 0 ? undefined : this.#measure();
    const published = version > this.#publishedVersion ? this.#publish(step, version) : undefined;
    const state = checkpointer.save(step);
    if (heldOut !== undefined) {
      const heldOutNll = nll(await heldOut);
      // The last update may have broken the weights. JSON has no NaN, so the summary leaves it out.
      if (Number.isFinite(heldOutNll)) this.#result = { ...this.#result, heldOutNll };
    }
    await published;
    if (this.#failure !== undefined) {
      await Promise.all([state.discard(), this.#trial.end()]);
      return;
    }
    const last: Candidate = { step, state, consumed: this.#consumed() };
    await this.#trial.end(last);
    this.#retire();
  }

  #resultAt({ place, leftOut }: Point): SupervisedResult {
    const epochs = this.#options.plan.epochsAt(place);
    return { examples: place - leftOut, ...(leftOut > 0 && { leftOut }), epochs };
  }

  /** What the weights of the newest confirmed step have consumed: all examples before their place. */
  #consumed(): Candidate['consumed'] {
    const { step, version, place } = this.#confirmed;
    const progress = this.#options.learningRates.progress(step);
    const cursor = { nextOrder: place, consumedBelow: place, consumedAbove: [] };
    const table = { ...cursor, counts: countsAt(this.#confirmed) };
    const { account, meter } = this.#options;
    const tokens = account.totals;
    return () => {
      const usage = { tokens, counted: [], meter: meter.totals };
      return { step, version, progress, table, rewinds: [], usage, messages: [] };
    };
  }

  #giveUp(step: number, reason: string): void {
    this.#options.log.warn({ step, reason }, 'training diverged');
    this.#failure ??= { step, reason };
    this.#over.abort();
  }

  #retire(): void {
    const { publisher, versionsInUse } = this.#options;
    this.#retired = this.#track(this.#retired.then(() => publisher.retire(versionsInUse())));
  }

  #track<T>(work: Promise<T>): Promise<T> {
    return this.#options.scope.track(work);
  }
}

const atTemperature1 = { temperature: 1 };

/** Examples in the place of groups: each was issued and trained once, or is dead because it was left out. */
function countsAt({ place, leftOut }: Point): GroupCounts {
  const none = { skippedZeroVariance: 0, stale: 0, outstanding: 0 };
  return { issued: place, trained: place - leftOut, dead: leftOut, ...none };
}

/** A list in at most `count` parts of nearly equal length. */
function parts<T>(items: readonly T[], count: number): T[][] {
  const size = Math.max(1, Math.ceil(items.length / count));
  return Array.from({ length: Math.ceil(items.length / size) }, (_, i) =>
    items.slice(i * size, (i + 1) * size),
  );
}
