import { open, rename } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Replaces a file atomically: after a crash or power failure at any moment it has either the old or the new
 * content. One writer at a time.
 */
export async function replaceFile(path: string, content: Uint8Array | string): Promise<void> {
  const unfinished = `${path}.partial`;
  await writeSynced(unfinished, content);
  await rename(unfinished, path);
  await syncFolder(dirname(path));
}

/** Writes a file, all at once or piece by piece; resolves once its content, but not yet its name in the folder, is on disk. */
export async function writeSynced(
  path: string,
  content: Uint8Array | string | Iterable<string>,
): Promise<void> {
  const pieces = typeof content === 'string' || content instanceof Uint8Array ? [content] : content;
  await using file = await open(path, 'w');
  for (const piece of pieces) await file.writeFile(piece);
  await file.sync();
}

/** Resolves once the names of a folder's entries are on disk. */
export async function syncFolder(path: string): Promise<void> {
  await syncFile(path);
}

/** Resolves once the content of a file, or the entries of a folder, are on disk. */
export async function syncFile(path: string): Promise<void> {
  await using file = await open(path, 'r');
  await file.sync();
}
