import { Counter } from 'prom-client';

const groupsDropped = new Counter({
  name: 'rl_groups_dropped_total',
  help: 'Groups that were not trained on, by where and why they were dropped.',
  labelNames: ['stage', 'reason'],
});

const tokensWasted = new Counter({
  name: 'rl_tokens_wasted_total',
  help: 'Sampled tokens that were not trained on, by why.',
  labelNames: ['reason'],
});

const totals: Record<string, number> = {};

/** Counts a group that will not be trained on. Each is counted once, by the process that drops it. */
export function countDroppedGroup(stage: string, reason: string): void {
  groupsDropped.inc({ stage, reason });
  add(`dropped/${stage}/${reason}`, 1);
}

/** Counts tokens that were sampled for nothing. */
export function countWastedTokens(reason: string, tokens: number): void {
  tokensWasted.inc({ reason }, tokens);
  add(`tokens_wasted/${reason}`, tokens);
}

/** What this process has dropped since it started, by the names of `metrics.jsonl`. */
export function dropTotals(): Readonly<Record<string, number>> {
  return totals;
}

function add(name: string, amount: number): void {
  totals[name] = (totals[name] ?? 0) + amount;
}
