import { randomUUID } from 'node:crypto';
import { chmod, copyFile, mkdir, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { compareVersions, probeNatsBinary, type NatsBinary } from './binary.js';

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
