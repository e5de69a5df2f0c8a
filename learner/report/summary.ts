import { access, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type RoomWait, writeWhenRoom } from '../../shared/service/telemetry/disk-room.js';
import type { Bill } from '../cost/bill.js';
import type { GroupCounts } from '../../shared/wire/ledger.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import type { Totals } from './history.js';
import type { Divergence } from '../stop/divergence-watch.js';
import type { NoSignalStreak } from '../stop/no-signal-watch.js';

/** Why a run ended, or paused. */
type EndReason = 'max_steps' | 'max_minutes' | 'stopped' | 'diverged' | 'no_signal';

/** The result of training on examples. */
export interface SupervisedResult {
  readonly examples: number; // trained on, over all epochs
  readonly leftOut?: number; // problems or examples that are left out, over all epochs, if there are any
  readonly epochs: number;
  readonly nll?: number; // of the last step's examples, nats per token, if this session has trained it
  readonly heldOutNll?: number; // of the examples that were held out, if there are any
}

export interface SummaryInput {
  readonly run: string;
  readonly reason: EndReason;
  readonly divergence?: Divergence | undefined; // set if that is the reason
  readonly noSignalStreak?: NoSignalStreak | undefined; // set if groups had no variance
  readonly version: number;
  readonly wallSeconds: number; // of this process
  readonly groups: GroupCounts;
  readonly totals: Totals; // of the whole run
  readonly bill: Bill; // of the whole run
  readonly before: EvalResult | undefined;
  readonly after: EvalResult | undefined;
  readonly supervised?: SupervisedResult | undefined; // of a run that trains on examples
  readonly from?: string | undefined; // where its first weights come from, if not from the base model
}

/** The summary of a run over all of its steps. Rates are per second of training, evaluations excluded. */
export function summarize(input: SummaryInput): Record<string, unknown> {
  const {
    run,
    reason,
    divergence,
    noSignalStreak,
    version,
    wallSeconds,
    groups,
    totals,
    bill,
    before,
    after,
    supervised,
    from,
  } = input;
  const { steps, lastStep, seconds, stalenessSum, stalenessMax } = totals;
  const perSecond = (total: number): number => (seconds === 0 ? 0 : total / seconds);
  return {
    run,
    reason,
    ...(divergence !== undefined && { divergence }),
    ...(noSignalStreak !== undefined && { drought: noSignalStreak }),
    ...(from !== undefined && { from }),
    steps: lastStep,
    version,
    wallSeconds: rounded(wallSeconds),
    trainingSeconds: rounded(seconds),
    groups,
    ...(supervised !== undefined && { supervised }),
    staleness: {
      mean: rounded(steps === 0 ? 0 : stalenessSum / steps),
      max: stalenessMax,
    },
    learnerIdleFraction: rounded(perSecond(totals.idleSeconds)),
    rolloutsPerSecond: rounded(perSecond(totals.rollouts)),
    tokensPerSecond: rounded(perSecond(totals.tokens)),
    cost: {
      ...bill,
      heldSeconds: roundedAll(bill.heldSeconds),
      gpuSeconds: roundedAll(bill.gpuSeconds),
    },
    eval: evals(before, after),
  };
}

/**
 * Writes `summary.json` to the run's folder. A session deletes the file before it records its first step, so one that
 * is there now has the result of an earlier session on the same weights. It stays if this session was stopped, which
 * has trained nothing then, and measured nothing at its end.
 */
export async function writeSummary(
  runDir: string,
  summary: Record<string, unknown>,
  wait: RoomWait,
): Promise<void> {
  const path = join(runDir, 'summary.json');
  const hasEarlier = await access(path).then(
    () => true,
    () => false,
  );
  if (hasEarlier && summary['reason'] === 'stopped') return;
  await writeWhenRoom('summary.json', wait, () =>
    writeFile(path, `${JSON.stringify(summary, undefined, 2)}\n`),
  );
}

/**
 * Exact-solve rates before and after: at the training temperature, and of the most probable answer. Those before are left
 * out if `--eval-problems` has changed since: as a change they would mislead.
 */
function evals(first: EvalResult | undefined, after: EvalResult | undefined) {
  const isComparable = after === undefined || first?.problems === after.problems;
  const before = isComparable ? first : undefined;
  const measured = after ?? before;
  if (measured === undefined) return null;
  const rates = (result: EvalResult | undefined) =>
    result === undefined
      ? null
      : { sampled: result.sampled, greedy: result.greedy, passAt: result.passAt };
  return { before: rates(before), after: rates(after), problems: measured.problems };
}

function roundedAll(values: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [key, rounded(value)]));
}

function rounded(value: number): number {
  return Math.round(value * 10_000) / 10_000;
}
