import { access, constants, stat, chmod, copyFile, mkdir, readdir, rename } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { runCommand } from '../run-command.js';

/** A nats-server that ran and printed its version. */
export interface NatsBinary {
  readonly path: string;
  readonly version: string; // 2.9.10
}

/** The first release that has streams, key-value and object stores as Offbeat uses them. */
export const oldestVersion = '2.9.0';

/**
 * The nats-server at `path`, once it has shown that it runs here: a file alone may be for another
 * machine, cut off by a full disk, or too old.
 *
 * @returns a sentence saying why not, when it cannot be used.
 */
export async function probeNatsBinary(path: string): Promise<NatsBinary | string> {
  try {
    await access(path, constants.X_OK);
    if (!(await stat(path)).isFile()) return `${path} is not a file`;
  } catch {
    return `${path} is not an executable file`;
  }
  const { code, output } = await runCommand(path, ['--version'], { timeoutMs: 10_000 });
  const version = /nats-server: v?(\d+\.\d+\.\d+)/.exec(output)?.[1];
  if (code !== 0 || version === undefined) {
    return `${path} --version did not answer like a nats-server: ${JSON.stringify(output.slice(0, 200))}`;
  }
  if (compareVersions(version, oldestVersion) < 0) {
    return `${path} is nats-server ${version}; ${oldestVersion} or newer is needed`;
  }
  return { path, version };
}

/** Negative when `a` is older than `b`, by their numbers: 2.9 is before 2.10. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [a, b].map((version) => version.split('.').map(Number));
  for (let i = 0; i < 3; i++) {
    const difference = (left![i] ?? 0) - (right![i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

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

/** The newest usable server under `folder`/<version>/nats-server. */
export async function findInCache(folder: string): Promise<NatsBinary | undefined> {
  const names = await readdir(folder).catch(() => []);
  const versions = names.filter((name) => /^\d+\.\d+\.\d+$/.test(name));
  for (const version of versions.sort(compareVersions).reverse()) {
    const found = await probeNatsBinary(join(folder, version, 'nats-server'));
    if (typeof found !== 'string') return found;
  }
  return undefined;
}

/**
 * Puts the server at `source` into the cache under its own version, so that the next start finds
 * it. The last act is a rename: two starts at once cannot see each other's half-written file.
 *
 * @returns a sentence saying why not, when the file turns out not to run here.
 */
export async function storeInCache(folder: string, source: string): Promise<NatsBinary | string> {
  await chmod(source, 0o755);
  const found = await probeNatsBinary(source);
  if (typeof found === 'string') return found;

  const home = join(folder, found.version);
  const path = join(home, 'nats-server');
  await mkdir(home, { recursive: true });
  const draft = `${path}.${randomUUID()}`;
  await copyFile(source, draft);
  await rename(draft, path);
  return { path, version: found.version };
}
