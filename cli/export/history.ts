import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { errorText, UserError } from '../../shared/base/errors.js';
import { plainWords } from '../../shared/base/plain-words.js';

/** A step of a run: a line of metrics.jsonl. */
export interface HistoryRow {
  readonly step: number;
  readonly version: number;
  readonly at: number; // ms since the epoch
  readonly metrics: Readonly<Record<string, number>>;
}

const Line = z
  .object({
    step: z.int().nonnegative(),
    version: z.int().nonnegative(),
    time: z.iso.datetime({ offset: true }),
  })
  .catchall(z.number());

/**
 * Every step in metrics.jsonl. A last line that is still being written is left out.
 *
 * @throws {UserError} if the file does not exist, or a line is not a step.
 */
export async function readHistory(path: string): Promise<HistoryRow[]> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    throw new UserError(
      `cannot read ${path} (${errorText(cause)}); a run has it from its first step on`,
      { cause },
    );
  }
  const lines = text.slice(0, text.lastIndexOf('\n') + 1).split('\n');
  return lines.flatMap((line, i) => (line === '' ? [] : [rowOf(line, `${path}:${i + 1}`)]));
}

function rowOf(line: string, place: string): HistoryRow {
  try {
    const { step, version, time, ...metrics } = Line.parse(JSON.parse(line), { error: plainWords });
    return { step, version, at: Date.parse(time), metrics };
  } catch (cause) {
    throw new UserError(`${place} is not a line of a metrics.jsonl: ${errorText(cause)}`, {
      cause,
    });
  }
}

/** The names of all metrics, in the order in which they first occur: some belong to few steps. */
function metricNames(rows: readonly HistoryRow[]): string[] {
  return [...new Set(rows.flatMap(({ metrics }) => Object.keys(metrics)))];
}

/** CSV by RFC 4180: one row per step; a field is empty if the step lacks that metric. */
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
