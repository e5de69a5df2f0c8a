import type { Check } from './suite.js';

/** The outcome of a suite. */
export interface Outcome {
  readonly suite: string;
  readonly checks: readonly Check[];
  /** The reason why it could not run, or not to its end. */
  readonly problem?: { readonly kind: 'skipped' | 'failed'; readonly message: string };
}

type Row = readonly [suite: string, check: string, value: string, bound: string, result: string];

/** Whether the suite did not fail; a skipped suite has not failed. */
export function hasPassed({ checks, problem }: Outcome): boolean {
  return problem?.kind !== 'failed' && checks.every(({ passed }) => passed);
}

/** All outcomes as one table, one line per check; values of any length keep their columns. */
export function table(outcomes: readonly Outcome[]): string {
  const rows: Row[] = [['suite', 'check', 'value', 'bound', 'result'], ...outcomes.flatMap(rowsOf)];
  const widths = [0, 1, 2, 3].map((column) => Math.max(...rows.map((row) => row[column]!.length)));
  const lines = rows.map((row) =>
    row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '),
  );
  lines.splice(1, 0, '-'.repeat(Math.max(...lines.map(({ length }) => length))));
  return `${lines.map((line) => line.trimEnd()).join('\n')}\n`;
}

function rowsOf({ suite, checks, problem }: Outcome): Row[] {
  const rows = checks.map(({ check, value, bound, passed }): Row => {
    return [suite, check, shown(value), bound, passed ? 'ok' : 'FAILED'];
  });
  if (problem !== undefined) {
    const message = problem.message.split('\n', 1)[0]!.slice(0, 100);
    rows.push([suite, message, '', '', problem.kind === 'failed' ? 'FAILED' : 'skipped']);
  }
  return rows;
}

function shown(value: string | number): string {
  if (typeof value === 'string') return value;
  if (Number.isInteger(value)) return String(value);
  if (Math.abs(value) < 1e-3) return value.toExponential(1);
  return value.toPrecision(value > 0.99 && value < 1 ? 10 : 4); // a cosine: how far from 1
}
