import { join } from 'node:path';
import { z } from 'zod';
import { errorText, UserError } from '../shared/base/errors.js';
import { plainWords } from '../shared/base/plain-words.js';
import { readLines } from '../shared/base/read-json.js';

/** The files of a run's folder that get a line of JSON with every step or evaluation. */
const journals = { 'metrics.jsonl': 'step', 'evals.jsonl': 'evaluation' } as const;

/**
 * The lines of such a file, each read by `rowOf`, without a last one that is still being written.
 *
 * @param unreadable what to do with a missing file and with lines at which `rowOf` throws.
 * @throws {UserError} naming the file or the line that is refused.
 */
export async function readJournal<T>(
  folder: string,
  name: keyof typeof journals,
  rowOf: (line: unknown) => T,
  unreadable: 'refuse' | 'skip' = 'refuse',
): Promise<T[]> {
  const path = join(folder, name);
  const lines = await wholeLines(path).catch((cause: unknown) => {
    if (unreadable === 'skip') return [];
    throw new UserError(
      `cannot read ${path} (${errorText(cause)}); the learner of the run writes it when it starts`,
      { cause },
    );
  });
  return lines.flatMap((line, i) => {
    if (line === '') return [];
    try {
      return [rowOf(JSON.parse(line))];
    } catch (cause) {
      if (unreadable === 'skip') return [];
      throw new UserError(`${path}:${i + 1} is not a line of a ${name}: ${errorText(cause)}`, {
        cause,
      });
    }
  });
}

/** The lines of a file that have their line break. */
async function wholeLines(path: string): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of readLines(path)) lines.push(line);
  return lines.slice(0, -1);
}

/** A step that was trained, by its line of `metrics.jsonl` or its event. */
export interface StepRow {
  readonly step: number;
  readonly version: number;
  readonly at: number; // ms since the epoch
  readonly metrics: Readonly<Record<string, number>>;
}

const StepLine = z
  .object({
    step: z.int().nonnegative(),
    version: z.int().nonnegative(),
    time: z.iso.datetime({ offset: true }),
  })
  .catchall(z.number());

/** Reads a line of `metrics.jsonl`. */
export function stepRow(line: unknown): StepRow {
  const { step, version, time, ...metrics } = StepLine.parse(line, { error: plainWords });
  return { step, version, at: Date.parse(time), metrics };
}
