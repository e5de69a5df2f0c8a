import { Gauge } from 'prom-client';
import { learningRateAt, progressAt, type RunProgress } from '../../shared/rl/learning-rate.js';
import type { AdamParams } from '../../shared/rl/adam-params.js';
import type { RunConfig } from '../../shared/run/run-config.js';

const learningRate = new Gauge({
  name: 'rl_learning_rate',
  help: 'Learning rate of the newest optimizer step that was sent.',
});

/** Derives the optimizer's settings from the run's progress. */
export class LearningRateSchedule {
  /** @param seconds of training in this session, from 0. */
  constructor(
    private readonly config: Pick<RunConfig, 'adam' | 'schedule'>,
    private readonly runProgress: RunProgress,
    private readonly seconds: () => number,
  ) {}

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
