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

/** Why training was given up, as of a step. */
export interface Divergence {
  readonly step: number;
  readonly reason: string;
  readonly checkpointStep: number; // of the last good checkpoint, which is the run's now
  readonly cause?: 'actor'; // what it is no use to change a setting of training for
}

/** Judges every step of a run, also those before a restart. */
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
      // What is not finite is left out of the events; those of older releases have no `/fleet`, `/upper` and `/lower`.
      kl: metrics['kl_sample_train_v2/fleet'] ?? metrics['kl_sample_train_v2'] ?? NaN,
      reward: metrics['env/all/reward/upper'] ?? reward,
      lowerReward: metrics['env/all/reward/lower'] ?? reward,
    };
    const { health, verdict } = judgeStep(this.#health, step, this.#limits);
    this.#health = health;
    unhealthySteps.set(health.unhealthySteps);
    return verdict;
  }

  /** @returns what is wrong if the policy collapsed, so that no step comes that would show it. */
  judgeNoSignal({ groups, reward }: NoSignalStreak): string | undefined {
    if (!isCollapse(this.#health, reward, this.#limits)) return undefined;
    return `${groups} groups in a row had no variance, and their reward was ${Number(reward.toPrecision(3))}`;
  }
}
