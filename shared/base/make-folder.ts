import { mkdir, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

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

/** Whether there is a folder, or a link to one. */
export function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
