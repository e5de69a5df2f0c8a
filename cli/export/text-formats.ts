import type { StepRow } from '../read-journal.js';

/** The names of all metrics, in the order in which they first occur: some belong to few steps. */
function metricNames(rows: readonly StepRow[]): string[] {
  return [...new Set(rows.flatMap(({ metrics }) => Object.keys(metrics)))];
}

/** CSV by RFC 4180: one row per step; a field is empty if the step lacks that metric. */
export function csvText(rows: readonly StepRow[]): string {
  const names = metricNames(rows);
  const header = ['step', 'version', 'time', ...names];
  const lines = rows.map(({ step, version, at, metrics }) => [
    ...[step, version, new Date(at).toISOString()],
    ...names.map((name) => metrics[name] ?? ''),
  ]);
  return [header, ...lines].map((cells) => `${cells.map(cell).join(',')}\r\n`).join('');
}

function cell(value: string | number): string {
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A history as Weights & Biases has it: JSON lines with _step, _timestamp and _runtime in seconds. */
export function wandbHistory(rows: readonly StepRow[]): string {
  const beganAt = rows[0]?.at ?? 0;
  return rows
    .map(({ step, version, at, metrics }) => {
      const line = { _step: step, _timestamp: at / 1_000, _runtime: (at - beganAt) / 1_000 };
      return `${JSON.stringify({ ...line, version, ...metrics })}\n`;
    })
    .join('');
}
