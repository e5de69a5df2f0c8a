import { metricNames, type HistoryRow } from './history.js';

/** CSV by RFC 4180: a row a step, empty where a step has not that metric. */
export function csvText(rows: readonly HistoryRow[]): string {
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
export function wandbHistory(rows: readonly HistoryRow[]): string {
  const beganAt = rows[0]?.at ?? 0;
  return rows
    .map(({ step, version, at, metrics }) => {
      const line = { _step: step, _timestamp: at / 1_000, _runtime: (at - beganAt) / 1_000 };
      return `${JSON.stringify({ ...line, version, ...metrics })}\n`;
    })
    .join('');
}
