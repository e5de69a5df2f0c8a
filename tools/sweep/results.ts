import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { gunzipSync, gzipSync } from 'node:zlib';
import { z } from 'zod';
import { sha256 } from '../../shared/base/bytes.js';
import { replaceFile } from '../../shared/base/durable-file.js';
import { errorText, UserError } from '../../shared/base/errors.js';
import { makeFolder } from '../../shared/base/make-folder.js';
import { readJson } from '../../shared/base/read-json.js';
import { EvalResult } from '../../shared/wire/eval-result.js';
import { readJournal, stepRow } from '../../cli/read-journal.js';
import { AppliedSettings } from './applied-settings.js';
import type { PlannedRun } from './plan.js';
import { Settings } from './sweep-file.js';

/** What is kept of a finished run. */
export const RunResult = z.strictObject({
  v: z.literal(2),
  name: z.string(),
  experiment: z.string().optional(), // its name; not in older results
  choice: z.record(z.string(), z.string()),
  seed: z.int().nonnegative(),
  settings: Settings,
  /**
   * The settings that applied, with those by default. Results that were committed before this was stored do not have it:
   * the tables are made from them as they are, since a table names what was run and does not run it again. A sweep
   * makes such a run again, because a default may have changed since.
   */
  applied: AppliedSettings.optional(),
  samplesPerStep: z.int().positive(),
  modelDigest: z.string(), // of the model that the run began with
  dataDigest: z.string().optional(), // of the files of its problems and examples, if there are any
  reason: z.string(), // why it ended: max_steps, max_minutes, diverged, …
  seconds: z.number().nonnegative(), // from its first process to its last
  finishedAt: z.iso.datetime(),
  machine: z.string(),
  summary: z.record(z.string(), z.unknown()), // as the learner wrote it
  evals: z.array(EvalResult).min(1), // in the order of the versions
  furtherEvals: z.record(z.string(), EvalResult).default({}), // by `offbeat eval`, by name
  furtherSettings: z.record(z.string(), Settings).default({}), // of these evaluations, by name
  steps: z.array(z.record(z.string(), z.number())), // the numbers of each line of metrics.jsonl
});
export type RunResult = z.infer<typeof RunResult>;

/** The results of an experiment, one file per run, written atomically. */
export class Results {
  constructor(private readonly folder: string) {}

  /** @throws {UserError} if the file exists and is not a result. */
  async read({ name }: Pick<PlannedRun, 'name'>): Promise<RunResult | undefined> {
    const path = this.#path(name);
    let json: string;
    try {
      json = await readFile(path, 'utf8');
    } catch {
      return undefined;
    }
    try {
      return RunResult.parse(JSON.parse(json));
    } catch (cause) {
      throw new UserError(
        `${path} is not a result of this version of offbeat; delete it to repeat the run`,
        { cause },
      );
    }
  }

  async write(result: RunResult): Promise<void> {
    await makeFolder(this.folder);
    await replaceFile(this.#path(result.name), `${JSON.stringify(result)}\n`);
  }

  #path(name: string): string {
    return join(this.folder, `${name}.json`);
  }
}

/** Writes a result for a repository: packed, and of its steps only the `columns`. */
export async function publishResult(
  folder: string,
  result: RunResult,
  columns: ReadonlySet<string>,
): Promise<void> {
  const steps = result.steps.map((step) =>
    Object.fromEntries(Object.entries(step).filter(([key]) => columns.has(key))),
  );
  await makeFolder(folder);
  const packed = gzipSync(JSON.stringify({ ...result, steps }), { level: 9 });
  await replaceFile(join(folder, fileOf(result.name)), packed);
}

/**
 * Refuses a folder with results of another experiment, which `publishResults` would delete. An older result, which does
 * not name its experiment, must at least have the choice of a planned run.
 *
 * @throws {UserError} naming one of them and the remedy.
 */
export async function checkPublishFolder(
  folder: string,
  experiment: string,
  planned: readonly Pick<PlannedRun, 'choice'>[],
): Promise<void> {
  const choices = planned.map(({ choice }) => choice);
  const other = (await publishedResults(folder)).find((result) =>
    result.experiment === undefined
      ? !choices.some((choice) => isDeepStrictEqual(choice, result.choice))
      : result.experiment !== experiment,
  );
  if (other === undefined) return;
  throw new UserError(
    `--publish ${folder} has a result that is not of ${experiment}: ${other.name}; ` +
      'name another folder, or delete it if the experiment had such a run once',
  );
}

/** What `publishResults` did with what was published before, as names of runs. */
interface Published {
  readonly deleted: readonly string[]; // no longer of the plan
  readonly left: readonly string[]; // of the plan without a result now, or no longer of the plan
}

/**
 * Publishes the results of an experiment. Once every planned run has one, it deletes the published results of runs that
 * are no longer of the plan: the tables are made from every result in the folder.
 */
export async function publishResults(
  folder: string,
  planned: readonly Pick<PlannedRun, 'name'>[],
  results: ReadonlyMap<string, RunResult>,
  columns: ReadonlySet<string>,
): Promise<Published> {
  for (const result of results.values()) await publishResult(folder, result, columns);
  const names = (await publishedResults(folder)).map(({ name }) => name);
  const isPlanned = new Set(planned.map(({ name }) => name));
  const isComplete = planned.every(({ name }) => results.has(name));
  const deleted = isComplete ? names.filter((name) => !isPlanned.has(name)) : [];
  for (const name of deleted) await rm(join(folder, fileOf(name)));
  const left = names.filter((name) => !results.has(name) && !deleted.includes(name));
  return { deleted, left };
}

function fileOf(name: string): string {
  return `${name}.json.gz`;
}

/** Reads the results that `publishResult` has written to a folder. @throws {UserError} naming a file that is no result. */
export async function publishedResults(folder: string): Promise<RunResult[]> {
  const files = (await readdir(folder)).filter((name) => name.endsWith('.json.gz')).sort();
  return Promise.all(
    files.map(async (name) => {
      const path = join(folder, name);
      try {
        return RunResult.parse(JSON.parse(gunzipSync(await readFile(path)).toString()));
      } catch (cause) {
        throw new UserError(
          `${path} is damaged, or of another version of offbeat (${errorText(cause)}); restore it, or delete it and publish again`,
          { cause },
        );
      }
    }),
  );
}

/** The SHA-256 of the files that a run with these settings would read its problems and examples from now; none if there are none. */
export async function digestOfData(settings: RunResult['settings']): Promise<string | undefined> {
  const names = [settings['dataset'], settings['data']].filter((name) => typeof name === 'string');
  // Other values, such as `generator` or the name of a dataset on the hub, are no files.
  const files = await Promise.all(names.map((name) => readFile(name).catch(() => undefined)));
  const digests = files.flatMap((file) => (file === undefined ? [] : [sha256(file)]));
  return digests.length === 0 ? undefined : digests.join(' ');
}

const Began = z.looseObject({ model: z.looseObject({ digest: z.string() }) });
const Ended = z.looseObject({ reason: z.string() });

/**
 * The result of a finished run, read from its folder.
 *
 * @throws {Error} if a file is missing or not of the expected form.
 */
export async function readRunFolder(
  folder: string,
): Promise<Pick<RunResult, 'modelDigest' | 'reason' | 'summary' | 'evals' | 'steps'>> {
  const { model } = Began.parse(await readJson(join(folder, 'config.json')));
  const summary = Ended.parse(await readJson(join(folder, 'summary.json')));
  const evals = await readJournal(folder, 'evals.jsonl', (line) => {
    const { time: _time, ...result } = z.looseObject({}).parse(line);
    return EvalResult.parse(result);
  });
  const rows = await readJournal(folder, 'metrics.jsonl', stepRow);
  const steps = rows.map(({ step, version, metrics }) => ({ step, version, ...metrics }));
  return { modelDigest: model.digest, reason: summary.reason, summary, evals, steps };
}
