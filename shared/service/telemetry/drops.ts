import { Counter } from 'prom-client';

const groupsDropped = new Counter({
  name: 'rl_groups_dropped_total',
  help: 'Groups dropped without being trained on, by stage and reason.',
  labelNames: ['stage', 'reason'],
});

const tokensWasted = new Counter({
  name: 'rl_tokens_wasted_total',
  help: 'Sampled tokens that were not trained on, by reason.',
  labelNames: ['reason'],
});

const totals: Record<string, number> = {};

/** Counts a group that will not be trained on, once, in the process that drops it. */
export function countDroppedGroup(stage: string, reason: string): void {
  groupsDropped.inc({ stage, reason });
  add(`dropped/${stage}/${reason}`, 1);
}

/** Counts sampled tokens that will not be trained on. */
export function countWastedTokens(reason: string, tokens: number): void {
  tokensWasted.inc({ reason }, tokens);
  add(`tokens_wasted/${reason}`, tokens);
}

/** Returns the totals of this process since it started, by their names in `metrics.jsonl`. */
export function dropTotals(): Readonly<Record<string, number>> {
  return totals;
}

/** Returns the sampled tokens that this process has wasted since it started, by reason. */
export function wastedTokens(): Readonly<Record<string, number>> {
  const prefix = 'tokens_wasted/';
  return Object.fromEntries(
    Object.entries(totals)
      .filter(([name]) => name.startsWith(prefix))
      .map(([name, tokens]) => [name.slice(prefix.length), tokens]),
  );
}

function add(name: string, amount: number): void {
  totals[name] = (totals[name] ?? 0) + amount;
}
