import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { createGunzip } from 'node:zlib';
import { extract } from 'tar-stream';
import { errorText } from '../../shared/base/errors.js';
import type { NatsBinary } from './binary.js';
import { storeInCache } from './cache.js';

const downloadTimeoutMs = 180_000;

/**
 * Fetches a release archive and puts its server into the cache. Nothing of the archive is unpacked,
 * let alone run, before its SHA-256 is the expected one.
 *
 * @returns a sentence saying why not, when it cannot be had or is not what was expected.
 */
export async function takeRelease(
  folder: string,
  archive: { url: string; sha256: string },
  signal?: AbortSignal,
): Promise<NatsBinary | string> {
  let bytes: Buffer;
  try {
    const timeout = AbortSignal.timeout(downloadTimeoutMs);
    const response = await fetch(archive.url, {
      signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
    });
    if (!response.ok) return `${archive.url} answered ${response.status} ${response.statusText}`;
    bytes = Buffer.from(await response.arrayBuffer());
  } catch (caught) {
    const cause = caught instanceof Error ? caught.cause : undefined;
    return `${archive.url} cannot be fetched: ${errorText(cause ?? caught)}`;
  }

  const sha256 = createHash('sha256').update(bytes).digest('hex');
  if (sha256 !== archive.sha256) {
    return `${archive.url} has the SHA-256 ${sha256}, not ${archive.sha256}: not used`;
  }

  const server = await serverIn(bytes);
  if (server === undefined) return `${archive.url} holds no file called nats-server`;
  await mkdir(folder, { recursive: true });
  const work = await mkdtemp(join(folder, 'release-'));
  try {
    const path = join(work, 'nats-server');
    await writeFile(path, server);
    return await storeInCache(folder, path);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** The file `nats-server` of a .tar.gz, which keeps it in a folder named for the release. */
async function serverIn(archive: Buffer): Promise<Buffer | undefined> {
  const entries = Readable.from([archive]).pipe(createGunzip()).pipe(extract());
  for await (const entry of entries) {
    const isServer = entry.header.type === 'file' && /(^|\/)nats-server$/.test(entry.header.name);
    if (isServer) return await buffer(entry);
    entry.resume();
  }
  return undefined;
}
