import { Gauge } from 'prom-client';
import {
  healthAtStart,
  isCollapse,
  judgeStep,
  type DivergenceLimits,
  type Verdict,
} from '../../shared/rl/divergence.js';
import type { NoSignalStreak } from './no-signal-watch.js';
import type { StepEvent } from '../report/history.js';

const unhealthySteps = new Gauge({
  name: 'rl_unhealthy_steps',
  help: 'Steps in a row whose KL or reward is out of bounds; as many as the patience end the run.',
});

/** The step at which training was given up, and why. */
export interface Divergence {
  readonly step: number;
  readonly reason: string;
  readonly checkpointStep: number; // of the last good checkpoint, which the run keeps
  readonly cause?: 'actor'; // set if changing training settings cannot help
}

/** Judges every step of a run, including those before a restart. */
export class DivergenceWatch {
  #health = healthAtStart;
  readonly #limits: DivergenceLimits;

  /** @param past steps of the run. */
  constructor(limits: DivergenceLimits, past: readonly StepEvent[]) {
    this.#limits = limits;
    for (const step of past) this.judge(step);
  }

  judge({ metrics }: StepEvent): Verdict {
    const reward = metrics['env/all/reward/total'] ?? NaN;
    const step = {
      // Events omit values that are not finite; those of older releases lack `/fleet`, `/upper` and `/lower`.
      kl: metrics['kl_sample_train_v2/fleet'] ?? metrics['kl_sample_train_v2'] ?? NaN,
      reward: metrics['env/all/reward/upper'] ?? reward,
      lowerReward: metrics['env/all/reward/lower'] ?? reward,
    };
    const { health, verdict } = judgeStep(this.#health, step, this.#limits);
    this.#health = health;
    unhealthySteps.set(health.unhealthySteps);
    return verdict;
  }

  /** Detects a collapse that no step can reveal. @returns a description; undefined if the policy has not collapsed. */
  judgeNoSignal({ groups, reward }: NoSignalStreak): string | undefined {
    if (!isCollapse(this.#health, reward, this.#limits)) return undefined;
    return `${groups} groups in a row had no variance, and their reward was ${Number(reward.toPrecision(3))}`;
  }
}
