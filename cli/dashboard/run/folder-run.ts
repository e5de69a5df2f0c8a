import { join } from 'node:path';
import { z } from 'zod';
import { readJson } from '../../../shared/base/read-json.js';
import { EvalResult } from '../../../shared/wire/eval-result.js';
import { RunConfig } from '../../../shared/run/run-config.js';
import { isInUse } from '../../../shared/service/folder-lock.js';
import { readJournal, stepRow } from '../../read-journal.js';
import type { RunFolder } from '../../run-folder.js';
import type { EvalPoint } from './history.js';
import type { RunView } from './run-view.js';
import { readSamples } from './sampled-group.js';

/**
 * A run as its folder records it, without missing files and lines of other releases.
 */
export async function folderRun(run: string, folder: RunFolder): Promise<RunView> {
  const [steps, evals, config, summary, samples] = await Promise.all([
    readJournal(folder.path, 'metrics.jsonl', stepRow, 'skip'),
    readJournal(folder.path, 'evals.jsonl', evalOf, 'skip'),
    readJson(join(folder.path, 'config.json')).catch(() => undefined),
    readJson(folder.summary).catch(() => undefined),
    readSamples(folder),
  ]);
  return {
    run,
    at: Date.now(),
    phase: isInUse(folder.path) ? 'silent' : 'over',
    config: RunConfig.safeParse(config).data,
    history: { steps, evals, quarantined: [], summary: Summary.safeParse(summary).data },
    flow: undefined,
    samples,
  };
}

const Summary = z.record(z.string(), z.unknown());

function evalOf(line: unknown): EvalPoint {
  return EvalResult.omit({ answers: true, byDifficulty: true }).loose().parse(line);
}
