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
  const parent = dirname(folder);
  try {
    await mkdir(folder, { mode });
    return folder;
  } catch (caught) {
    if (await isFolder(folder)) return undefined;
    const isMissing = (caught as NodeJS.ErrnoException).code === 'ENOENT';
    if (!isMissing || (await isFolder(parent))) throw caught;
    const first = await makeFolder(parent, mode);
    const made = await makeFolder(folder, mode);
    return first ?? made;
  }
}

function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
