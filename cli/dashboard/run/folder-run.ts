import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { readJson } from '../../../shared/base/read-json.js';
import { EvalResult } from '../../../shared/wire/eval-result.js';
import { RunConfig } from '../../../shared/run/run-config.js';
import type { RunFolder } from '../../run-folder.js';
import type { EvalPoint, StepPoint } from './history.js';
import type { RunView } from './run-view.js';
import { readSamples } from './sampled-group.js';

/**
 * A run as its folder records it, without missing files and lines of other releases.
 */
export async function folderRun(run: string, folder: RunFolder): Promise<RunView> {
  const [steps, evals, config, summary, samples] = await Promise.all([
    readLines(join(folder.path, 'metrics.jsonl'), stepOf),
    readLines(join(folder.path, 'evals.jsonl'), evalOf),
    readJson(join(folder.path, 'config.json')).catch(() => undefined),
    readJson(folder.summary).catch(() => undefined),
    readSamples(folder),
  ]);
  return {
    run,
    at: Date.now(),
    phase: 'over',
    config: RunConfig.safeParse(config).data,
    history: { steps, evals, quarantined: [], summary: Summary.safeParse(summary).data },
    flow: undefined,
    samples,
  };
}

const Summary = z.record(z.string(), z.unknown());

const Row = z.looseObject({ step: z.int(), version: z.int(), time: z.iso.datetime() });

function stepOf(line: unknown): StepPoint | undefined {
  const row = Row.safeParse(line).data;
  if (row === undefined) return undefined;
  const { step, version, time, ...metrics } = row;
  const numbers = Object.entries(metrics).filter(
    (entry): entry is [string, number] => typeof entry[1] === 'number',
  );
  return { step, version, at: Date.parse(time), metrics: Object.fromEntries(numbers) };
}

function evalOf(line: unknown): EvalPoint | undefined {
  return EvalResult.omit({ answers: true, byDifficulty: true }).loose().safeParse(line).data;
}

async function readLines<T>(
  path: string,
  read: (line: unknown) => T | undefined,
): Promise<readonly T[]> {
  const text = await readFile(path, 'utf8').catch(() => '');
  return text.split('\n').flatMap((line) => {
    const value = parse(line);
    return value === undefined ? [] : (read(value) ?? []);
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // a line that is still being written
  }
}
