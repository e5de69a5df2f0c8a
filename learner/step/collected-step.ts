import type { TrainingRun } from '../../shared/tinker/training-run.js';
import { advantageAt } from '../../shared/rl/advantages.js';
import type { AdvantageKind } from '../../shared/rl/objective.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { Changes } from '../../shared/base/changes.js';
import type { Admission, Minibatch } from '../groups/admission.js';
import type { TaskScope } from '../../shared/base/task-scope.js';
import type { IdleClock } from './idle-clock.js';
import type { ArrivedGroup } from '../groups/check-scored-group.js';
import {
  needsWholeBatch,
  prepareMinibatches,
  sendMinibatch,
  type MinibatchResult,
} from './minibatch-pass.js';
import type { LearningRateSchedule } from './learning-rate-schedule.js';

/** A group that a step trained on. */
export interface TrainedGroup {
  readonly group: ArrivedGroup;
  readonly staleness: number; // in steps
  readonly substep: number; // that trained on it
}

export interface CollectedStepOptions {
  readonly config: RunConfig;
  readonly run: TrainingRun;
  readonly base: TrainingRun | undefined; // never trained; defined only with a KL penalty
  readonly learningRates: LearningRateSchedule;
  readonly idle: IdleClock;
  readonly scope: TaskScope;
  readonly admission: Pick<Admission<ArrivedGroup>, 'rewinds' | 'limiter'>;
  readonly changes: Pick<Changes, 'notify'>;
}

/**
 * A step whose minibatches are being collected. Each goes to the backend as it arrives, or all at once
 * where the batch must be whole, and an optimizer step follows the last minibatch of each substep.
 */
export class CollectedStep {
  readonly #options: CollectedStepOptions;
  readonly #advantage: AdvantageKind; // one for the whole step
  readonly #held: Minibatch<ArrivedGroup>[] = []; // not sent yet
  #trained: TrainedGroup[] = [];
  #results: Promise<MinibatchResult>[] = [];
  readonly #optimized: Promise<Record<string, number>>[] = []; // one per substep

  /** @param number of the step, from 1. */
  constructor(
    options: CollectedStepOptions,
    readonly number: number,
  ) {
    this.#options = options;
    const { config, learningRates } = options;
    this.#advantage = advantageAt(config, learningRates.progress(number - 1));
  }

  /** The groups that were sent, in the order of the minibatches. */
  get sentGroups(): readonly TrainedGroup[] {
    return this.#trained;
  }

  /** The results of the minibatches' passes. */
  get results(): readonly Promise<MinibatchResult>[] {
    return this.#results;
  }

  /** The backend's metrics of each optimizer step, and its learning rate. */
  get optimStepMetrics(): readonly Promise<Record<string, number>>[] {
    return this.#optimized;
  }

  /** Resolves once the minibatch is in the backend's queue, or is held until the batch is whole. */
  async take(minibatch: Minibatch<ArrivedGroup>): Promise<void> {
    this.#held.push(minibatch);
    if (!minibatch.isLastOfStep && needsWholeBatch(this.#options.config)) return;
    await this.#send(this.#held.splice(0));
  }

  /**
   * Ends the step early: keeps only the minibatches that the optimizer steps so far have used.
   *
   * @returns the number of these optimizer steps.
   */
  cutShort(): number {
    const { groupsPerBatch, numSubsteps, numMinibatches } = this.#options.config;
    const substeps = this.#optimized.length;
    this.#results = this.#results.slice(0, substeps * numMinibatches);
    this.#trained = this.#trained.slice(0, (substeps * groupsPerBatch) / numSubsteps);
    return substeps;
  }

  async #send(minibatches: readonly Minibatch<ArrivedGroup>[]): Promise<void> {
    const { run, config, idle, scope, admission, changes } = this.#options;
    const { version } = minibatches[0]!; // the version rises only after the last minibatch of a step
    const { maxStepsOffPolicy } = config;
    const bound = { version, maxStepsOffPolicy, rewinds: admission.rewinds };
    const scored = minibatches.map(({ groups }) => groups.map(({ scored }) => scored));
    const settings = { ...config, advantage: this.#advantage };
    const prepared = await idle.during(prepareMinibatches(this.#options, settings, scored, bound));
    minibatches.forEach(({ orders, groups, staleness, substep, isLastOfSubstep }, i) => {
      const result = sendMinibatch(run, config, prepared[i]!).then((computed) => {
        admission.limiter.recordComputed(orders);
        changes.notify();
        return computed;
      });
      this.#results.push(scope.track(idle.during(result)));
      groups.forEach((group, g) => {
        this.#trained.push({ group, staleness: staleness[g]!, substep });
      });
      if (isLastOfSubstep) this.#optimized.push(this.#optimize());
    });
  }

  #optimize(): Promise<Record<string, number>> {
    const { run, idle, scope, learningRates } = this.#options;
    const adam = learningRates.settingsFor(this.number);
    const taken = idle.during(run.optimStep(adam));
    return scope.track(taken.then((metrics) => ({ ...metrics, learning_rate: adam.learningRate })));
  }
}
