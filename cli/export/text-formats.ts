import type { StepRow } from '../read-journal.js';

/** The names of all metrics, in the order in which they first occur: some belong to few steps. */
function metricNames(rows: readonly StepRow[]): string[] {
  return [...new Set(rows.flatMap(({ metrics }) => Object.keys(metrics)))];
}

/** CSV by RFC 4180, line by line: one row per step; a field is empty if the step lacks that metric. */
export function* csvLines(rows: readonly StepRow[]): Generator<string> {
  const names = metricNames(rows);
  const line = (cells: readonly (string | number)[]) => `${cells.map(cell).join(',')}\r\n`;
  yield line(['step', 'version', 'time', ...names]);
  for (const { step, version, at, metrics } of rows) {
    const about = [step, version, new Date(at).toISOString()];
    yield line([...about, ...names.map((name) => metrics[name] ?? '')]);
  }
}

function cell(value: string | number): string {
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A history as Weights & Biases has it: JSON lines with _step, _timestamp and _runtime in seconds. */
export function* wandbHistory(rows: readonly StepRow[]): Generator<string> {
  const beganAt = rows[0]?.at ?? 0;
  for (const { step, version, at, metrics } of rows) {
    const line = { _step: step, _timestamp: at / 1_000, _runtime: (at - beganAt) / 1_000 };
    yield `${JSON.stringify({ ...line, version, ...metrics })}\n`;
  }
}

const blockLength = 2 ** 20;

/** Joins lines to blocks of about a million characters: those of a run of days together are longer than a string may be. */
export function* inBlocks(lines: Iterable<string>): Generator<string> {
  let block = '';
  for (const line of lines) {
    block += line;
    if (block.length < blockLength) continue;
    yield block;
    block = '';
  }
  yield block;
}
