import { mkdir, readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { UserError } from '../../shared/errors.js';
import { nearest } from '../../shared/nearest.js';

/** Everything that a run leaves behind, in one place. */
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
 * Makes `parent`/`name` with its subfolders.
 *
 * @throws {UserError} when the run exists: its history is never overwritten.
 */
export async function createRunFolder(parent: string, name: string): Promise<RunFolder> {
  const path = resolve(parent, name);
  await mkdir(parent, { recursive: true });
  try {
    await mkdir(path); // not recursive: of two starts with one name, one is refused
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw cause;
    throw new UserError(
      `the run ${name} exists already in ${path}; add --resume to go on with it, choose another name with --run, or delete that folder`,
      { cause },
    );
  }
  const folder = runFolderAt(parent, name);
  for (const subfolder of [folder.logs, folder.nats, folder.checkpoints]) await mkdir(subfolder);
  return folder;
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
 * The folder of a run that is to go on.
 *
 * @throws {UserError} when there is none.
 */
export async function findRunFolder(parent: string, name: string): Promise<RunFolder> {
  const runs = await runsIn(parent);
  if (runs.includes(name)) return runFolderAt(parent, name);
  throw new UserError(`${unknownRun(name, parent, runs)} Without --resume a new run begins.`);
}

/** The names of the runs in a folder of runs. */
export async function runsIn(parent: string): Promise<string[]> {
  try {
    const entries = await readdir(parent, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  } catch {
    return [];
  }
}

/** For an error: that there is no such run, and which there are. */
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
