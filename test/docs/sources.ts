import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/package-root.js';

/** The TypeScript and JavaScript under some folders of the checkout. */
export async function sourceTexts(folders: readonly string[]): Promise<string[]> {
  const paths = await Promise.all(folders.map(filesUnder));
  const sources = paths.flat().filter((path) => /\.(ts|mjs)$/.test(path));
  return Promise.all(sources.map((path) => readFile(join(packageRoot, path), 'utf8')));
}

/** All files under a folder, as paths from the root of the checkout. */
export async function filesUnder(folder: string): Promise<string[]> {
  const paths = await readdir(join(packageRoot, folder), { recursive: true });
  return paths.map((path) => join(folder, path)).sort();
}
