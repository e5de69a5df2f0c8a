import {
  embeddedModelPath,
  type ModelDirectory,
  readModelDirectory,
} from '../../shared/model/model-directory.js';
import { digestFor } from '../../shared/run/run-data.js';
import { type AppliedRun, differences } from './applied-settings.js';
import { digestOfData, type Results, type RunResult } from './results.js';
import { isEvaluated } from './run-one.js';
import type { FurtherEvaluation } from './sweep-file.js';

/** The planned runs that have a stored result, by name. */
export interface FinishedRuns {
  readonly done: Map<string, RunResult>; // as the run would be made now
  readonly outdated: ReadonlyMap<string, string>; // why the run would be another one now
  readonly stored: ReadonlyMap<string, RunResult>; // of both kinds
}

/** Compares each stored result with the run as it would be made now. */
export async function finishedRuns(
  planned: readonly AppliedRun[],
  results: Pick<Results, 'read'>,
  further: readonly FurtherEvaluation[],
): Promise<FinishedRuns> {
  const done = new Map<string, RunResult>();
  const outdated = new Map<string, string>();
  const stored = new Map<string, RunResult>();
  const models = new Map<string, ModelDirectory>();
  for (const run of planned) {
    const result = await results.read(run);
    if (result === undefined) continue;
    stored.set(run.name, result);
    const path = String(run.settings['modelDir'] ?? embeddedModelPath);
    const directory = models.get(path) ?? (await readModelDirectory(path));
    models.set(path, directory);
    const model = digestFor(result.modelDigest, directory);
    const data = await digestOfData(run.settings);
    const why = whyOutdated(run, result, { model, data, further });
    if (why === undefined) done.set(run.name, result);
    else outdated.set(run.name, why);
  }
  return { done, outdated, stored };
}

interface Now {
  readonly model: string; // the digest
  readonly data: string | undefined; // its digest; undefined: none is here
  readonly further: readonly FurtherEvaluation[];
}

/** @returns undefined if the result is that of the run as it would be made now. */
function whyOutdated(
  { applied }: AppliedRun,
  result: RunResult,
  { model, data, further }: Now,
): string | undefined {
  if (result.modelDigest !== model) return 'the model is another one now';
  // Files of data that are gone say nothing against a result.
  if (data !== undefined && data !== result.dataDigest) return 'a file of its data has changed';
  if (!isEvaluated(result, further)) return 'an evaluation is missing, or has other settings now';
  if (result.applied === undefined) {
    return 'it does not say which defaults applied, so they may have changed since';
  }
  const found = differences(result.applied, applied);
  return found.length === 0 ? undefined : found.join(', ');
}

/** A line for each reason. @param isReported whether a report is made of them nevertheless. */
export function outdatedText(outdated: ReadonlyMap<string, string>, isReported = false): string {
  const reasons = [...new Set(outdated.values())];
  const lines = reasons.map((reason) => {
    const names = [...outdated].filter(([, why]) => why === reason).map(([name]) => name);
    return `  - ${names.join(', ')}: ${reason}`;
  });
  const what = isReported
    ? 'the report has stored results whose runs a sweep would make again'
    : 'stored results that do not count, so that their runs are to be made again';
  return `${what}:\n${lines.join('\n')}`;
}
