import type { EvalResult, SolveRates } from '../../shared/wire/eval-result.js';
import { percent } from '../percent.js';

/** A result as a table for people: a row for all problems and, where there are several, a difficulty. */
export function evalTable(result: EvalResult): string {
  const { temperature, samples, byDifficulty, lost } = result;
  const tries = Object.keys(result.passAt)
    .map(Number)
    .filter((k) => k > 1)
    .sort((a, b) => a - b);
  const row = (name: string, rates: SolveRates): string[] => [
    name,
    String(rates.problems),
    percent(rates.sampled),
    percent(rates.greedy),
    ...tries.map((k) => (k in rates.passAt ? percent(rates.passAt[k]!) : '')),
  ];
  const rows = [
    ['', 'problems', 'sampled', 'greedy', ...tries.map((k) => `pass@${k}`)],
    row('all', result),
    ...(byDifficulty.length > 1
      ? byDifficulty.map(({ difficulty, ...rates }) => row(difficulty, rates))
      : []),
  ];
  const notes = [`sampled: ${samples} answers to a problem at temperature ${temperature}`];
  if (lost > 0) notes.push(`without ${lost} tickets that died`);
  return [...aligned(rows), ...notes].join('\n');
}

/** The first column to the left, the others to the right. */
function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)));
  return rows.map((row) =>
    row
      .map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)))
      .join('  '),
  );
}
