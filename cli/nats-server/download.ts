import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { createGunzip } from 'node:zlib';
import { extract } from 'tar-stream';
import { sha256 } from '../../shared/base/bytes.js';
import { errorText } from '../../shared/base/errors.js';
import { withDebianPackage, type DebianTools } from '../debian-package.js';
import { type NatsBinary, storeInCache } from './binary.js';

/** The release that is downloaded if there is no package and no installed server. */
export const pinnedRelease = {
  version: '2.14.5',
  /**
   * SHA-256 of the release's archives by `<os>-<architecture>`, from its SHA256SUMS file as two
   * independent package collections recorded it.
   */
  sha256: {
    'linux-amd64': '5e3b603d47c447bda1f77f9ac16dbf91c90aac4ff3681f8fbbc7201e4ed99355',
    'linux-arm64': '673a98d3faa79dde3f9ebf16d6dfac36a5f694e7ad2015e4954dd7939c85cd4c',
    'darwin-amd64': 'f95c98d6b6ed2b63c5681b46b092c9585c99767d547cf495730c329234625e96',
    'darwin-arm64': 'ddd907854d9a2de834af133fa396915fe6442fe6d8909ae31390d1ea7a0fea50',
  } as Readonly<Record<string, string>>,
  baseUrl: 'https://github.com/nats-io/nats-server/releases/download',
};

export type Release = typeof pinnedRelease;

/** The archive for a platform as Node names it, or undefined when none is published for it. */
export function releaseArchive(
  release: Release,
  platform: string,
  architecture: string,
): { url: string; sha256: string } | undefined {
  const cpu = { x64: 'amd64', arm64: 'arm64' }[architecture];
  const target = `${platform}-${cpu ?? architecture}`;
  const sha256 = release.sha256[target];
  if (sha256 === undefined) return undefined;
  const name = `nats-server-v${release.version}-${target}.tar.gz`;
  return { url: `${release.baseUrl}/v${release.version}/${name}`, sha256 };
}

const downloadTimeoutMs = 180_000;

/**
 * Fetches a release archive and puts its server into the cache. Nothing of the archive is unpacked,
 * let alone run, before its SHA-256 is the expected one.
 *
 * @returns a sentence saying why not, if the download fails or its content is unexpected.
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

  const digest = sha256(bytes);
  if (digest !== archive.sha256) {
    return `${archive.url} has the SHA-256 ${digest}, not ${archive.sha256}: not used`;
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

/**
 * Puts the server of the distribution's nats-server package into the cache.
 *
 * @returns a sentence saying why not, if the package is unavailable.
 */
export async function takeDebianPackage(
  folder: string,
  tools: DebianTools,
  signal?: AbortSignal,
): Promise<NatsBinary | string> {
  const store = (unpacked: string) =>
    storeInCache(folder, join(unpacked, 'usr', 'sbin', 'nats-server'));
  return await withDebianPackage('nats-server', folder, tools, store, signal);
}
