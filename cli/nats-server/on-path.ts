import { delimiter, join } from 'node:path';
import { access, constants } from 'node:fs/promises';

/** Where packages put servers, which is not on every user's PATH. */
const systemFolders = [
  '/usr/local/sbin',
  '/usr/sbin',
  '/sbin',
  '/usr/local/bin',
  '/opt/homebrew/bin',
];

/** The folders to search for a server, in order: PATH first. */
export function searchFolders(path: string | undefined): string[] {
  const fromPath = (path ?? '').split(delimiter).filter((folder) => folder !== '');
  return [...new Set([...fromPath, ...systemFolders])];
}

/** Each executable called `name` in `folders`, first folder first. */
export async function findExecutables(name: string, folders: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const folder of folders) {
    const path = join(folder, name);
    const isExecutable = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isExecutable) found.push(path);
  }
  return found;
}
