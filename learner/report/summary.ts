import type { GroupCounts } from '../../shared/wire/ledger.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import type { StepEvent } from './history.js';
import type { Divergence } from '../divergence-watch.js';
import type { Drought } from '../drought-watch.js';

/** Why a run ended, or paused. */
export type EndReason = 'max_steps' | 'max_minutes' | 'stopped' | 'diverged' | 'no_signal';

export interface SummaryInput {
  readonly run: string;
  readonly reason: EndReason;
  readonly divergence?: Divergence | undefined; // if that is the reason
  readonly drought?: Drought | undefined; // if no group had variance any more
  readonly version: number;
  readonly wallSeconds: number; // of this process
  readonly groups: GroupCounts;
  readonly steps: readonly StepEvent[]; // of the whole run
  readonly before: EvalResult | undefined;
  readonly after: EvalResult | undefined;
}

/** What a run came to, over all of its steps. Rates are per second of training, evaluations excluded. */
export function summarize(input: SummaryInput): Record<string, unknown> {
  const { run, reason, divergence, drought, version, wallSeconds, groups, steps, before, after } =
    input;
  const column = (name: string): number[] => steps.map(({ metrics }) => metrics[name] ?? 0);
  const seconds = sum(column('seconds'));
  const perSecond = (name: string): number => (seconds === 0 ? 0 : sum(column(name)) / seconds);
  return {
    run,
    reason,
    ...(divergence !== undefined && { divergence }),
    ...(drought !== undefined && { drought }),
    steps: steps.at(-1)?.step ?? 0,
    version,
    wallSeconds: rounded(wallSeconds),
    trainingSeconds: rounded(seconds),
    groups,
    staleness: {
      mean: rounded(steps.length === 0 ? 0 : sum(column('staleness/mean')) / steps.length),
      max: Math.max(0, ...column('staleness/max')),
    },
    learnerIdleFraction: rounded(perSecond('idle_seconds')),
    rolloutsPerSecond: rounded(perSecond('scored/rollouts')),
    tokensPerSecond: rounded(perSecond('scored/tokens')),
    eval: evals(before, after),
  };
}

/** Exact-solve rates: at the training temperature, and of the most probable answer. */
function evals(before: EvalResult | undefined, after: EvalResult | undefined) {
  const measured = after ?? before;
  if (measured === undefined) return null;
  const rates = (result: EvalResult | undefined) =>
    result === undefined
      ? null
      : { sampled: result.sampled, greedy: result.greedy, passAt: result.passAt };
  return { before: rates(before), after: rates(after), problems: measured.problems };
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function rounded(value: number): number {
  return Math.round(value * 10_000) / 10_000;
}
