import { createHash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { copyFile, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { UserError } from '../../shared/base/errors.js';
import { convertGguf } from '../../shared/model/gguf/convert.js';
import { parseModelConfig } from '../../shared/model/model-config.js';
import { checkModelDirectory } from '../../shared/model/model-directory.js';
import { fetchFile, sizeText } from '../../shared/service/hub/download.js';
import { HubFailure, type Repository } from '../../shared/service/hub/hub.js';
import { printError } from '../../shared/service/telemetry/print-error.js';
import { askForListing, HubFile, listingOf } from '../../shared/service/hub/listing.js';
import { isModelFile, licensePattern, modelFiles, requireRoom } from './model-files.js';
import { originFile, originText, readOrigin, sizesOf, sourceText, type Origin } from './origin.js';
import type { ModelRequest } from './request.js';

type Wanted<Kind> = Extract<ModelRequest['wanted'], { kind: Kind }>;

/**
 * Puts a model into a folder, which may hold a part of it from an earlier attempt.
 *
 * @returns its origin, which is also in the folder.
 * @throws {UserError} if it cannot be had or run, with the remedy.
 */
export async function take(wanted: ModelRequest['wanted'], folder: string): Promise<Origin> {
  if (wanted.kind === 'hub') return takeFromHub(wanted, folder);
  await clear(folder);
  const origin =
    wanted.kind === 'gguf' ? await takeGguf(wanted, folder) : await takeDirectory(wanted, folder);
  await writeFile(join(folder, originFile), originText(origin));
  return origin;
}

async function takeFromHub(wanted: Wanted<'hub'>, folder: string): Promise<Origin> {
  const { hub, repository: name } = wanted;
  const repository: Repository = { kind: 'models', name };
  try {
    const origin = (await begun(wanted, folder)) ?? (await beginning(wanted, repository));
    if (origin.source.kind !== 'hub') throw new Error(`${folder} is of a ${origin.source.kind}`);
    const { commit } = origin.source;
    await requireRoom(folder, await missingBytes(origin, folder));
    // Written first, so that the next attempt continues with the same commit.
    await writeFile(join(folder, originFile), originText(origin));
    for (const each of origin.files) {
      const file = HubFile.parse(each);
      const path = join(folder, file.path);
      if (file.path.endsWith('.safetensors')) hub.report(`${file.path}: ${sizeText(file.size)}`);
      await fetchFile(hub, { repository, commit, file }, path);
      if (file.path === 'config.json') parseModelConfig(await readFile(path, 'utf8'), path);
    }
    return origin;
  } catch (caught) {
    if (!(caught instanceof HubFailure)) throw caught;
    throw new UserError(
      `cannot fetch the model ${name}: ${caught.message}.\nThe same command continues where this one ended`,
      { cause: caught },
    );
  }
}

/** The origin that an earlier attempt has written. @throws {UserError} if it was for another model. */
async function begun(wanted: Wanted<'hub'>, folder: string): Promise<Origin | undefined> {
  if (!existsSync(join(folder, originFile))) await clear(folder);
  const origin = await readOrigin(folder);
  if (origin === undefined || isFrom(wanted, origin)) return origin;
  throw new UserError(
    `${folder} is a part of ${sourceText(origin.source)}; delete it, or name another --out`,
  );
}

async function beginning(wanted: Wanted<'hub'>, repository: Repository): Promise<Origin> {
  const { hub, repository: name, revision } = wanted;
  const listing = listingOf(await askForListing(hub, repository, revision), repository);
  const byPath = new Map(listing.files.map((file) => [file.path, file]));
  const { endpoint } = hub;
  return {
    v: 1,
    source: { kind: 'hub', endpoint, repository: name, revision, commit: listing.commit },
    ...(listing.license !== undefined && { license: listing.license }),
    files: modelFiles([...byPath.keys()], name).map((path) => byPath.get(path)!),
  };
}

async function missingBytes({ files }: Origin, folder: string): Promise<number> {
  const here = await readdir(folder);
  let bytes = 0;
  for (const { path, size } of files) {
    const found = here.find((name) => name === path || name.startsWith(`${path}.part-`));
    bytes += size - (found === undefined ? 0 : (await stat(join(folder, found))).size);
  }
  return bytes;
}

/** Deletes what an earlier attempt has left. @throws {UserError} if there is something else. */
async function clear(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name !== '.lock');
  const other = names.find(
    (name) => name !== originFile && !isModelFile(name.replace(/\.part-\d+$/, '')),
  );
  if (other !== undefined) {
    throw new UserError(
      `${join(folder, other)} is not from an earlier attempt; delete ${folder}, or name another --out`,
    );
  }
  for (const name of names) await rm(join(folder, name));
}

async function takeDirectory({ path }: Wanted<'directory'>, folder: string): Promise<Origin> {
  await checkModelDirectory(path);
  const names = modelFiles(await readdir(path), path);
  const files = await sizesOf(path, names);
  await requireRoom(
    folder,
    files.reduce((sum, { size }) => sum + size, 0),
  );
  for (const name of names) await copyFile(join(path, name), join(folder, name));
  const before = await readOrigin(path).catch(() => undefined); // other programs make directories too
  if (before === undefined) return { v: 1, source: { kind: 'directory', path }, files };
  const { source, files: known, ...rest } = before;
  const from = source.kind === 'directory' ? source.from : source;
  return {
    ...rest, // license and formats
    source: { kind: 'directory', path, ...(from !== undefined && { from }) },
    // With their checksums, except those that were changed since.
    files: files.map(
      (file) => known.find(({ path, size }) => path === file.path && size === file.size) ?? file,
    ),
  };
}

async function takeGguf({ path, dtype }: Wanted<'gguf'>, folder: string): Promise<Origin> {
  printError(`unpacking ${path}`);
  const { license, formats } = await convertGguf(path, folder, dtype);
  for (const name of await readdir(dirname(path))) {
    if (licensePattern.test(name)) await copyFile(join(dirname(path), name), join(folder, name));
  }
  const names = (await readdir(folder)).filter((name) => name !== '.lock' && name !== originFile);
  return {
    v: 1,
    source: { kind: 'gguf', path, sha256: await fileSha256(path), dtype },
    formats,
    ...(license !== undefined && { license }),
    files: await sizesOf(folder, names.sort()),
  };
}

async function fileSha256(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of createReadStream(path, { highWaterMark: 2 ** 20 })) {
    hash.update(piece as Buffer);
  }
  return hash.digest('hex');
}

/** Whether a finished directory holds what is wanted, something else, or what was wanted before that changed. */
export async function compareWith(
  wanted: ModelRequest['wanted'],
  folder: string,
  origin: Origin,
): Promise<'same' | 'changed' | 'other'> {
  const { source } = origin;
  if (!isFrom(wanted, origin)) return 'other';
  const isSame =
    wanted.kind === 'gguf' && source.kind === 'gguf'
      ? source.sha256 === (await fileSha256(wanted.path))
      : wanted.kind === 'hub' || (await isCopy(wanted.path, folder, origin));
  return isSame ? 'same' : 'changed';
}

/**
 * Whether a directory still has the files of its copy and no others. Only the contents of those written since are compared: a
 * file of the same size that keeps an older date counts as unchanged.
 */
async function isCopy(from: string, folder: string, { files }: Origin): Promise<boolean> {
  const wanted = modelFiles(await readdir(from), from);
  if (wanted.some((name) => files.every(({ path }) => path !== name))) return false;
  const copied = (await stat(join(folder, originFile))).mtimeMs;
  for (const { path, size } of files) {
    const found = await stat(join(from, path)).catch(() => undefined);
    if (found?.size !== size) return false;
    if (found.mtimeMs < copied) continue;
    const [theirs, ours] = [
      await fileSha256(join(from, path)),
      await fileSha256(join(folder, path)),
    ];
    if (theirs !== ours) return false;
  }
  return true;
}

function isFrom(wanted: ModelRequest['wanted'], { source }: Origin): boolean {
  if (wanted.kind === 'hub') {
    return (
      source.kind === 'hub' &&
      source.repository === wanted.repository &&
      [source.revision, source.commit].includes(wanted.revision)
    );
  }
  if (source.kind !== wanted.kind || source.path !== wanted.path) return false;
  return wanted.kind === 'directory' || (source.kind === 'gguf' && source.dtype === wanted.dtype);
}
