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
   * learning rate, which is logged.
   *
   * @throws {UserError} if that rate is 0 and the session has steps to train.
   */
  checkStart(log: Pick<Logger, 'warn'>): void {
    const { adam, schedule, run } = this.config;
    const { progressBefore, stepBefore, maxSteps, maxSeconds } = this.runProgress;
    const hasSteps = stepBefore < maxSteps && maxSeconds > 0;
    if (schedule.kind === 'constant' || progressBefore < 1 || !hasSteps) return;
    if (schedule.finalShare === 0) {
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
