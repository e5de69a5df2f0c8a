import { Gauge } from 'prom-client';
import { UserError } from '../../shared/base/errors.js';
import { learningRateAt, progressAt, type RunProgress } from '../../shared/rl/learning-rate.js';
import type { AdamParams } from '../../shared/rl/adam-params.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';

const learningRate = new Gauge({
  name: 'rl_learning_rate',
  help: 'Learning rate of the newest optimizer step that was sent.',
});

/** Derives the optimizer's settings from the run's progress. */
export class LearningRateSchedule {
  /** @param seconds of training in this session, from 0. */
  constructor(
    private readonly config: Pick<RunConfig, 'run' | 'adam' | 'schedule'>,
    private readonly runProgress: RunProgress,
    private readonly seconds: () => number,
  ) {}

  /**
   * Checks what is left of the schedule for this session. A run whose schedule has ended continues at its final
   * learning rate, which is logged. If that is 0, the session may only do what the one before it left undone.
   *
   * @param hasEnded whether an earlier session ended the run with the restored weights, and was neither stopped nor killed.
   * @throws {UserError} if it has, that rate is 0 and the session has steps to train.
   */
  checkStart(log: Pick<Logger, 'warn'>, hasEnded: boolean): void {
    const { adam, schedule, run } = this.config;
    const { progressBefore, stepBefore } = this.runProgress;
    if (schedule.kind === 'constant' || progressBefore < 1 || !this.#hasSteps) return;
    if (this.isSpent && !hasEnded) {
      log.warn(
        { step: stepBefore },
        'the schedule of the run has ended at a learning rate of 0: no further step is trained',
      );
      return;
    }
    if (this.isSpent) {
      throw new UserError(
        `run ${run} has reached the end of its --schedule ${schedule.kind}, and its --final-rate-share 0 leaves no learning ` +
          `rate for further steps; start a new run from its weights, with --from ${run}`,
      );
    }
    const rate = learningRateAt(adam.learningRate, schedule, stepBefore + 1, progressBefore);
    log.warn(
      { learningRate: rate },
      'the schedule of the run has ended: it continues at its final learning rate',
    );
  }

  /** Whether the session must not train the steps that its limits leave, since the schedule has ended at 0. */
  get isSpent(): boolean {
    return this.#hasSteps && this.leavesNothing(this.runProgress.stepBefore);
  }

  /** Whether the learning rate is 0 for all further steps. @param step steps that the run has trained. */
  leavesNothing(step: number): boolean {
    const { kind, finalShare } = this.config.schedule;
    return kind !== 'constant' && finalShare === 0 && this.progress(step) >= 1;
  }

  get #hasSteps(): boolean {
    const { stepBefore, maxSteps, maxSeconds } = this.runProgress;
    return stepBefore < maxSteps && maxSeconds > 0;
  }

  /** @param step steps that the run has trained. @returns 0 to 1. */
  progress(step: number): number {
    return progressAt(this.runProgress, step, this.seconds());
  }

  /** The settings of an optimizer step. @param step that it is part of, counted from 1. */
  settingsFor(step: number): AdamParams {
    const { adam, schedule } = this.config;
    const rate = learningRateAt(adam.learningRate, schedule, step, this.progress(step - 1));
    learningRate.set(rate);
    return { ...adam, learningRate: rate };
  }
}
