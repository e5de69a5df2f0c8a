import type { StepEvent } from './history.js';

/** What the steps of a run come to, in as much memory whether they are ten or a million. */
export interface Totals {
  readonly steps: number; // counted
  readonly lastStep: number;
  readonly seconds: number; // of training, evaluations excluded
  readonly idleSeconds: number;
  readonly rollouts: number;
  readonly tokens: number;
  readonly stalenessSum: number; // of the means of the steps
  readonly stalenessMax: number;
}

export const noSteps: Totals = {
  ...{ steps: 0, lastStep: 0, seconds: 0, idleSeconds: 0 },
  ...{ rollouts: 0, tokens: 0, stalenessSum: 0, stalenessMax: 0 },
};

/** The same with one more step, by the names of `metrics.jsonl`. */
export function withStep(totals: Totals, { step, metrics }: StepEvent): Totals {
  const value = (name: string): number => metrics[name] ?? 0;
  return {
    steps: totals.steps + 1,
    lastStep: step,
    seconds: totals.seconds + value('seconds'),
    idleSeconds: totals.idleSeconds + value('idle_seconds'),
    rollouts: totals.rollouts + value('scored/rollouts'),
    tokens: totals.tokens + value('scored/tokens'),
    stalenessSum: totals.stalenessSum + value('staleness/mean'),
    stalenessMax: Math.max(totals.stalenessMax, value('staleness/max')),
  };
}
