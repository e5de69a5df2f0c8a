import { mkdir, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

/**
 * Makes a folder and those above it that are missing. `mkdir` of Node.js with `recursive` never returns where a
 * folder that exists takes no entry and says ENOENT, as /proc does.
 *
 * @returns the first folder that was made; undefined if all were there.
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
