import { open, rename } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Replaces a file as a whole: after a crash at any moment there is the old content or the new, and
 * after a power failure too. One writer at a time.
 */
export async function replaceFile(path: string, content: Uint8Array | string): Promise<void> {
  const unfinished = `${path}.partial`;
  await writeSynced(unfinished, content);
  await rename(unfinished, path);
  await syncFolder(dirname(path));
}

/** Writes a file; resolves once the disk has its content, though not yet its name in the folder. */
export async function writeSynced(path: string, content: Uint8Array | string): Promise<void> {
  await using file = await open(path, 'w');
  await file.writeFile(content);
  await file.sync();
}

/** Resolves once the disk has the names of what lies in a folder. */
export async function syncFolder(path: string): Promise<void> {
  await using folder = await open(path, 'r');
  await folder.sync();
}
