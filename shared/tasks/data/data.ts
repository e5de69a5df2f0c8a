import { existsSync, statSync } from 'node:fs';
import { z } from 'zod';
import { UserError } from '../../base/errors.js';
import { HubFailure, repositoryPattern } from '../../service/hub/hub.js';
import { HubFile, type Listing } from '../../service/hub/listing.js';
import type { CommonSettings, Complain } from '../task.js';
import { datasetHubOf, fetchDatasetFile, listDataset, type DatasetHub } from './dataset-hub.js';
import { readRows, split, tableKind, tableSpec, TableSpec } from './table.js';

/** Files of one revision of a dataset on the Hugging Face hub, with their checksums. */
export const HubSpec = z.strictObject({
  kind: z.literal('hub'),
  repository: z.string().regex(repositoryPattern), // OWNER/NAME
  commit: z.string().regex(/^[0-9a-f]{40}$/),
  files: z.array(HubFile).min(1),
  ...split,
});
export type HubSpec = z.infer<typeof HubSpec>;

/** The source of a task's rows: a file, or files of the hub in order. */
export const DataSpec = z.discriminatedUnion('kind', [TableSpec, HubSpec]);
export type DataSpec = z.infer<typeof DataSpec>;

/**
 * The data that `--dataset` names: a file path, or `OWNER/NAME`, `OWNER/NAME@REVISION` or
 * `OWNER/NAME:FILE` on the hub.
 *
 * @throws {UserError} if it is neither, or the hub lacks it or cannot be reached.
 */
export async function dataSpec(
  dataset: string,
  how: Pick<TableSpec, 'seed' | 'testSize'>,
  hub = datasetHubOf(process.env),
): Promise<DataSpec> {
  const [, repository, revision = 'main', file] =
    /^([A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*)(?:@([^:]+))?(?::(.+))?$/.exec(dataset) ?? [];
  const isPath = tableKind(dataset) !== undefined && file === undefined;
  // A file of another kind that exists is refused for its kind, instead of being looked for on the hub.
  const isHere = () => existsSync(dataset) && statSync(dataset).isFile();
  if (repository === undefined || isPath || isHere()) return tableSpec(dataset, how);
  const listing = await explained(repository, () => listDataset(hub, repository, revision));
  const files = chosenFiles(repository, listing, file);
  return { kind: 'hub', repository, commit: listing.commit, files, ...how };
}

/** The data that the settings name, for a task without a generator; see `checkData`. */
export function dataOf({
  dataset = '',
  datasetSeed: seed,
  testSize,
}: CommonSettings): Promise<DataSpec> {
  return dataSpec(dataset, { seed, testSize });
}

/** Reports settings without data, for a task without a generator. */
export function checkData(task: string, { dataset }: CommonSettings, complain: Complain): void {
  if (dataset === undefined || dataset === 'generator') {
    complain('dataset', `the task ${task} has no generator; name a file of problems`);
  }
}

/**
 * The rows of the data in order, each as `problemOf` reads it.
 *
 * @param example a good row, as `readRows` takes it.
 * @throws {UserError} if a file cannot be fetched or read, with the remedy.
 */
export async function readData<Problem>(
  spec: DataSpec,
  problemOf: (row: unknown) => Problem,
  example: Readonly<Record<string, unknown>>,
  hub: DatasetHub = datasetHubOf(process.env),
): Promise<Problem[]> {
  if (spec.kind !== 'hub') return readRows(spec, problemOf, example);
  const { repository, commit } = spec;
  const problems: Problem[] = [];
  for (const file of spec.files) {
    const path = await explained(repository, () =>
      fetchDatasetFile(hub, { name: repository, commit, file }),
    );
    const kind = tableKind(file.path)!;
    for (const problem of await readRows({ kind, path }, problemOf, example))
      problems.push(problem);
  }
  return problems;
}

/** The name of the data in error messages. */
export function sourceOf(spec: DataSpec): string {
  return spec.kind === 'hub' ? spec.repository : spec.path;
}

/** The requested file, or those of the train split. */
function chosenFiles(
  repository: string,
  { files, commit }: Listing,
  wanted: string | undefined,
): HubFile[] {
  const readable = files.filter(({ path }) => tableKind(path) !== undefined);
  const ofTrain = readable.filter(({ path }) => /(^|[^A-Za-z])train([^A-Za-z]|$)/.test(path));
  const named = readable.filter(({ path }) => path === wanted);
  const chosen = wanted !== undefined ? named : ofTrain.length > 0 ? ofTrain : readable;
  const wholes = new Set(chosen.map(({ path }) => wholeOf(path)));
  if (wholes.size === 1 && (chosen === ofTrain || chosen.length === 1)) {
    return chosen.toSorted((a, b) => (a.path < b.path ? -1 : 1));
  }
  const shown = readable.slice(0, 10).map(({ path }) => `  - ${repository}:${path}`);
  throw new UserError(
    shown.length === 0
      ? `${repository} has no file *.jsonl, *.csv or *.parquet in ${commit}`
      : `--dataset ${repository}${wanted === undefined ? ' has several' : `:${wanted} is none of its`} files; ` +
          `name one of them:\n${shown.join('\n')}`,
  );
}

/** Of the files in one folder of the split, the folder and their kind. Else a file's path without the number of the part. */
function wholeOf(path: string): string {
  const [name = ''] = path.split('/').slice(-1);
  return /train/.test(name)
    ? path.replace(partNumber, '')
    : path.replace(/[^/]*$/, tableKind(path)!);
}

/** What the parts of one file differ in: `train-00001-of-00003-0a1b2c.parquet`, `train_1.jsonl`. */
const partNumber = /[-_.]?\d+(?:-of-\d+(?:-[0-9a-f]+)?)?(?=\.[^./]+$)/;

async function explained<T>(repository: string, fetching: () => Promise<T>): Promise<T> {
  try {
    return await fetching();
  } catch (caught) {
    if (!(caught instanceof HubFailure || caught instanceof UserError)) throw caught;
    throw new UserError(
      `cannot fetch the dataset ${repository}: ${caught.message}.\n` +
        'You can use a local copy: name its file *.parquet, *.jsonl or *.csv with --dataset when starting a run, ' +
        'and with --dataset-path for an actor or reward service',
      { cause: caught },
    );
  }
}
