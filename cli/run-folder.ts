import { existsSync } from 'node:fs';
import { access, constants, mkdir, readdir, rm, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { z } from 'zod';
import { errorText, UserError } from '../shared/base/errors.js';
import { isFolder } from '../shared/base/make-folder.js';
import { readJson } from '../shared/base/read-json.js';
import { nearest } from '../shared/base/nearest.js';
import { noRoomReason } from '../shared/service/telemetry/disk-room.js';
import { statesInFolder } from './eval/saved-states.js';
import { lockFolder } from '../shared/service/folder-lock.js';

/** The folder with all files of a run. */
export interface RunFolder {
  readonly path: string; // absolute
  readonly launch: string; // how it was started; config.json beside it is the learner's
  readonly summary: string;
  readonly logs: string;
  readonly nats: string;
  readonly checkpoints: string;
}

/** A name from the local time, which sorts by it: `20261121-014502`. */
export function runNameAt(now: Date): string {
  const two = (value: number) => String(value).padStart(2, '0');
  const date = [now.getFullYear(), two(now.getMonth() + 1), two(now.getDate())].join('');
  return `${date}-${[now.getHours(), now.getMinutes(), now.getSeconds()].map(two).join('')}`;
}

/**
 * Checks, without writing anything, that the folder of a new run can be created.
 *
 * @throws {UserError} when the run exists, or files that no start has written: neither is ever overwritten; or when `parent` cannot be
 *   written.
 */
export async function checkNewRun(parent: string, name: string): Promise<void> {
  const { path, launch } = runFolderAt(parent, name);
  try {
    const place = await nearestExisting(resolve(parent));
    if (!(await stat(place)).isDirectory()) throw new Error(`${place} is not a folder`);
    await access(place, constants.W_OK | constants.X_OK);
    if (!existsSync(path) || !(await hasBegun(path))) return;
  } catch (cause) {
    throw notWritable(parent, cause);
  }
  if (!existsSync(launch) && !existsSync(join(path, 'metrics.jsonl'))) {
    throw new UserError(
      `the folder ${path} already exists, with files that no start has written; choose another name with --run, or move them`,
    );
  }
  throw new UserError(
    `the run ${name} already exists in ${path}; add --resume to continue it, choose another name with --run, or delete that folder`,
  );
}

/**
 * Makes the folder of a new run with its subfolders and keeps others out of it, until the lock is disposed of.
 * Removes what an earlier start left there if it failed before its run began.
 *
 * @returns also whether the folder is a user's, who made it before any start.
 * @throws {UserError} as `checkNewRun` does, or while another start is at work there.
 */
export async function createRunFolder(
  parent: string,
  name: string,
): Promise<{ readonly folder: RunFolder; readonly lock: Disposable; readonly isUsers: boolean }> {
  await checkNewRun(parent, name);
  const folder = runFolderAt(parent, name);
  const isUsers = existsSync(folder.path) && !existsSync(folder.launch);
  try {
    const lock = await lockFolder(folder.path, 'offbeat up');
    await rm(folder.summary, { force: true });
    for (const subfolder of [folder.logs, folder.nats, folder.checkpoints]) {
      await rm(subfolder, { recursive: true, force: true });
      await mkdir(subfolder);
    }
    return { folder, lock, isUsers };
  } catch (caught) {
    if (caught instanceof UserError) throw caught;
    await removeIfNotBegun(folder, { keepLogs: true, isUsers }).catch(() => undefined); // it may not exist
    throw notWritable(parent, caught);
  }
}

/**
 * Removes the folder of a start that failed before its run began.
 *
 * @param keepLogs leaves it where a process has written a log.
 * @param isUsers as `createRunFolder` returns it: then only its content is removed.
 * @returns whether the run had begun.
 */
export async function removeIfNotBegun(
  { path, logs }: RunFolder,
  { keepLogs, isUsers = false }: { readonly keepLogs: boolean; readonly isUsers?: boolean },
): Promise<boolean> {
  if (await hasBegun(path)) return true;
  const hasLogs = async () => (await readdir(logs).catch(() => [])).length > 0;
  if (keepLogs && (await hasLogs())) return false;
  const unwanted = isUsers ? (await readdir(path)).map((entry) => join(path, entry)) : [path];
  for (const each of unwanted) await rm(each, { recursive: true, force: true });
  return false;
}

/** What a start writes before its launch file. */
const beforeTheLaunch = ['.lock', '.lock.takeover', '.room', 'launch.json.partial'];

/** What else is in the folder of a start that has not evaluated or trained anything yet. */
const beforeItBegins = [
  ...['launch.json', 'config.json'],
  ...['checkpoint.json', 'checkpoint.json.partial'], // of step 0; later ones have metrics beside them
  ...['rollouts.json', 'rollouts.json.partial'], // what the dashboard showed last
  'summary.json', // of a learner that was stopped before it did anything; see `hasEnded`
];

/** Whether a folder has a result or a trained state of a run, or files that no start has written. */
async function hasBegun(path: string): Promise<boolean> {
  const entries = await readdir(path);
  const isOurs = entries.includes('launch.json');
  const known = isOurs ? [...beforeTheLaunch, ...beforeItBegins] : beforeTheLaunch;
  for (const entry of entries.filter((each) => !known.includes(each))) {
    const part = join(path, entry);
    if (['logs', 'nats', 'checkpoints'].includes(entry)) {
      if (!isOurs && (await readdir(part)).length > 0) return true;
    } else if (!entry.endsWith('.jsonl') || (await stat(part)).size > 0) return true;
  }
  if (await hasEnded(join(path, 'summary.json'))) return true;
  const states = await statesInFolder(join(path, 'checkpoints'));
  return states.some(({ step }) => step > 0);
}

/** Whether a run has ended by itself. It may have done so before its first step: out of time, or given up. */
async function hasEnded(summary: string): Promise<boolean> {
  const found = await readJson(summary).catch(() => undefined);
  const { data } = z.object({ reason: z.string() }).safeParse(found);
  return data !== undefined && data.reason !== 'stopped';
}

function notWritable(parent: string, cause: unknown): UserError {
  const noRoom = noRoomReason(cause);
  return new UserError(
    `${noRoom === undefined ? '' : `${noRoom}: `}no run can be kept in ${resolve(parent)} (${errorText(cause)}); ` +
      `${noRoom === undefined ? '' : 'make room, or '}name a folder that you can write with --runs-dir`,
    { cause },
  );
}

/** The folder itself, or its nearest existing parent. */
export async function nearestExisting(path: string): Promise<string> {
  const exists = await access(path).then(
    () => true,
    () => false,
  );
  return exists || dirname(path) === path ? path : nearestExisting(dirname(path));
}

/** Where the parts of a run lie, whether it exists or not. */
export function runFolderAt(parent: string, name: string): RunFolder {
  const path = resolve(parent, name);
  return {
    path,
    launch: join(path, 'launch.json'),
    summary: join(path, 'summary.json'),
    logs: join(path, 'logs'),
    nats: join(path, 'nats'),
    checkpoints: join(path, 'checkpoints'),
  };
}

/**
 * The folder of a run that is to be resumed.
 *
 * @throws {UserError} when there is none.
 */
export async function findRunFolder(parent: string, name: string): Promise<RunFolder> {
  const runs = await runsIn(parent);
  if (runs.includes(name)) return runFolderAt(parent, name);
  throw new UserError(`${unknownRun(name, parent, runs)} Without --resume a new run begins.`);
}

/** The names of the runs in a folder of runs. A run may be a link to its folder, as on another disk. */
export async function runsIn(parent: string): Promise<string[]> {
  const names = await readdir(parent).catch(() => []);
  const areRuns = await Promise.all(names.map((name) => isFolder(join(parent, name))));
  return names.filter((_, i) => areRuns[i]);
}

/** The text of an error: the run does not exist, and which runs do. */
export function unknownRun(run: string, runsDir: string, runs: readonly string[]): string {
  const meant = nearest(run, runs);
  const known =
    meant !== undefined
      ? `did you mean ${meant}?`
      : runs.length > 0
        ? `there are ${runs.slice(-10).join(', ')}.`
        : 'there are no runs.';
  return `there is no run ${run} in ${runsDir}; ${known}`;
}
