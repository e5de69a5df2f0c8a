import { access, constants, mkdir, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { errorText, UserError } from './errors.js';

/**
 * Creates a folder and its missing parents. Node.js' recursive `mkdir` never returns if an existing folder
 * accepts no entries and reports ENOENT, as /proc does.
 *
 * @returns the first folder that was created; undefined if all existed.
 */
export async function makeFolder(path: string, mode?: number): Promise<string | undefined> {
  const folder = resolve(path);
  let first: string | undefined;
  for (let isRetry = false; ; isRetry = true) {
    try {
      await mkdir(folder, { mode });
      return first ?? folder;
    } catch (caught) {
      if (await isFolder(folder)) return first;
      const isMissing = (caught as NodeJS.ErrnoException).code === 'ENOENT';
      if (!isMissing || isRetry) throw caught;
      first = await makeFolder(dirname(folder), mode); // unless another caller has just created it
    }
  }
}

/**
 * Creates the folder that a user has named for output, and its missing parents.
 *
 * @param flag that named it, or that can name another: `--out`.
 * @throws {UserError} if it cannot be created or written.
 */
export async function makeOutputFolder(path: string, flag: string, mode?: number): Promise<void> {
  try {
    await makeFolder(path, mode);
    await access(path, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw unusableFolder(path, flag, cause);
  }
}

/** The error of a folder that {@link makeOutputFolder} or another function could not create. */
export function unusableFolder(path: string, flag: string, cause: unknown): UserError {
  return new UserError(
    `${path} is not a folder that can be written (${errorText(cause)}); name another with ${flag}`,
    { cause },
  );
}

/** Whether there is a folder, or a link to one. */
export function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
