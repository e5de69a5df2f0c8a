import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { syncFolder, writeSynced } from '../shared/base/durable-file.js';
import { makeFolder } from '../shared/base/make-folder.js';

const unfinished = '.new.';
const replaced = '.old.';

/** Creates a folder and its missing parents, and syncs them so that they survive a power failure. */
export async function makeFolders(path: string): Promise<void> {
  const first = await makeFolder(path);
  if (first === undefined) return;
  for (let folder = resolve(path); ; folder = dirname(folder)) {
    await syncFolder(dirname(folder));
    if (folder === first || folder === dirname(folder)) return;
  }
}

/**
 * Writes a folder atomically: after a crash or a power failure at any moment it has the old content or
 * the new, since everything is synced before the rename.
 *
 * @param files content by path relative to the folder.
 * @param place is given the work that puts the written files in the place of the old ones, which takes a moment.
 */
export async function writeFolder(
  folder: string,
  files: ReadonlyMap<string, Uint8Array | string>,
  place: (swap: () => Promise<void>) => Promise<void>,
): Promise<void> {
  const parent = dirname(folder);
  const name = folder.slice(parent.length + 1);
  const temporary = join(parent, `${unfinished}${randomUUID()}`);
  const folders = new Set<string>();
  try {
    for (const [path, content] of files) {
      const file = join(temporary, path);
      await mkdir(dirname(file), { recursive: true });
      folders.add(dirname(file));
      await writeSynced(file, content);
    }
    for (const path of [...folders, temporary]) await syncFolder(path);
    const old = join(parent, `${replaced}${randomUUID()}.${name}`);
    await place(async () => {
      if (existsSync(folder)) await rename(folder, old);
      try {
        await rename(temporary, folder);
      } catch (error) {
        if (existsSync(old)) await rename(old, folder);
        throw error;
      }
      await syncFolder(parent);
    });
    await rm(old, { recursive: true, force: true });
  } catch (error) {
    await rm(temporary, { recursive: true, force: true });
    throw error;
  }
}

/**
 * Removes a folder atomically: renames it first, then deletes its files.
 *
 * @param isGone is called between the two.
 */
export async function removeFolder(folder: string, isGone: () => void): Promise<void> {
  const renamed = join(dirname(folder), `${unfinished}${randomUUID()}`);
  await rename(folder, renamed);
  isGone();
  await rm(renamed, { recursive: true, force: true });
}

/** Cleans up `parent` after a crash: removes half-written folders and restores a replaced one. */
export async function repairFolders(parent: string): Promise<void> {
  for (const entry of await readdir(parent)) {
    const path = join(parent, entry);
    if (entry.startsWith(replaced)) {
      const target = join(parent, entry.slice(replaced.length + randomUUID().length + 1));
      if (existsSync(target)) await rm(path, { recursive: true, force: true });
      else await rename(path, target);
    } else if (entry.startsWith(unfinished)) await rm(path, { recursive: true, force: true });
  }
}
