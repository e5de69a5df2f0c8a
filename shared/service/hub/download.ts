import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { syncFile, syncFolder } from '../../base/durable-file.js';
import { UserError } from '../../base/errors.js';
import { noRoomReason } from '../telemetry/disk-room.js';
import { ask, HubFailure, persistently, reasonOf, type Hub, type Repository } from './hub.js';
import type { HubFile } from './listing.js';

/** A file of one commit. */
interface FileAtCommit {
  readonly repository: Repository;
  readonly commit: string;
  readonly file: HubFile;
}

/**
 * Downloads a file unless it is already at `path`. A partial download, even by a process that
 * has ended, is kept and continued; the file is accepted only if its checksum matches.
 *
 * @throws {HubFailure} if it cannot be fetched now.
 * @throws {UserError} if the hub refuses it, or a different file exists at its path.
 * @throws the error of the write if the disk is full.
 */
export async function fetchFile(
  hub: Hub,
  { repository: { kind, name }, commit, file }: FileAtCommit,
  path: string,
): Promise<void> {
  const found = await sizeOf(path);
  if (found !== undefined) {
    if (found === file.size && (await hasChecksum(path, file))) return;
    throw new UserError(`${path} is not the file that the hub has there; delete it, or repair it`);
  }
  await mkdir(dirname(path), { recursive: true });
  const part = await takeOver(path);
  const place = kind === 'models' ? name : `${kind}/${name}`;
  const inside = file.path.split('/').map(encodeURIComponent).join('/');
  const from = `/${place}/resolve/${commit}/${inside}`;
  await persistently(hub, async () => {
    await continuePart(hub, from, part, file.size);
    if (await hasChecksum(part, file)) return;
    await rm(part);
    throw new HubFailure(`${hub.endpoint}${from} has another checksum than ${file.checksum}`);
  });
  await syncFile(part); // else a power failure may leave an empty file by the final name
  await rename(part, path);
  await syncFolder(dirname(path));
}

/** Appends the missing bytes to the partial file. */
async function continuePart(hub: Hub, from: string, part: string, size: number): Promise<void> {
  const found = await sizeOf(part);
  if (found === size) return;
  const have = found ?? 0; // an empty file has to be created too
  const stalled = new AbortController();
  const timer = setTimeout(() => {
    stalled.abort(new Error(`no data for ${hub.stallMs / 1_000} s`));
  }, hub.stallMs);
  try {
    // Uncompressed, because a range of compressed bytes is not a range of the file.
    const range: Record<string, string> = have > 0 ? { range: `bytes=${have}-` } : {};
    const headers = { 'accept-encoding': 'identity', ...range };
    const response = await ask(hub, from, { headers, signal: stalled.signal });
    const continues = response.headers.get('content-range')?.startsWith(`bytes ${have}-`) === true;
    if (response.status === 416 || (response.status === 206 && !continues)) {
      await response.body?.cancel();
      await rm(part, { force: true });
      throw new HubFailure(`${hub.endpoint}${from} does not continue at byte ${have}`);
    }
    await using file = await open(part, response.status === 206 ? 'a' : 'w');
    let bytes = response.status === 206 ? have : 0;
    let reportedAt = performance.now();
    for await (const chunk of response.body ?? []) {
      timer.refresh();
      bytes += (chunk as Uint8Array).byteLength;
      if (bytes > size) throw new TooLong(`${hub.endpoint}${from} has more than ${size} bytes`);
      await file.writeFile(chunk as Uint8Array);
      if (performance.now() - reportedAt < reportEveryMs) continue;
      reportedAt = performance.now();
      hub.report(`${basename(from)}: ${Math.floor((100 * bytes) / size)} % of ${sizeText(size)}`);
    }
    if (bytes < size)
      throw new HubFailure(`${hub.endpoint}${from} ended at byte ${bytes} of ${size}`);
  } catch (caught) {
    if (caught instanceof TooLong) await rm(part, { force: true });
    if (caught instanceof HubFailure || caught instanceof UserError) throw caught;
    if (noRoomReason(caught) !== undefined) throw caught; // asking again would not help
    throw new HubFailure(`${hub.endpoint}${from} broke off (${reasonOf(caught)})`, {
      cause: caught,
    });
  } finally {
    clearTimeout(timer);
  }
}

const reportEveryMs = 10_000;

/** `269 MB`. */
export function sizeText(bytes: number): string {
  return bytes < 1e9 ? `${Math.ceil(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}

class TooLong extends HubFailure {}

/**
 * The partial file of this process. Its name contains the process id, so that no two processes write to
 * it; the partial file of a process that has ended is taken over.
 */
async function takeOver(path: string): Promise<string> {
  const prefix = `${basename(path)}.part-`;
  const own = join(dirname(path), `${prefix}${process.pid}`);
  for (const name of await readdir(dirname(path))) {
    const pid = Number(name.slice(prefix.length));
    if (!name.startsWith(prefix) || pid === process.pid || isRunning(pid)) continue;
    // Another process may have taken it over first.
    await rename(join(dirname(path), name), own).catch(() => undefined);
  }
  return own;
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (caught) {
    return (caught as NodeJS.ErrnoException).code === 'EPERM';
  }
}

async function hasChecksum(path: string, { size, checksum }: HubFile): Promise<boolean> {
  const [kind, expected] = checksum.split(':');
  const hash = createHash(kind === 'git' ? 'sha1' : 'sha256');
  if (kind === 'git') hash.update(`blob ${size}\0`);
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest('hex') === expected;
}

async function sizeOf(path: string): Promise<number | undefined> {
  return stat(path).then(
    ({ size }) => size,
    () => undefined,
  );
}
