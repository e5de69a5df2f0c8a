import { createHash, randomBytes } from 'node:crypto';
import { open, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { sha256 } from '../../base/bytes.js';
import { syncFolder } from '../../base/durable-file.js';
import { errorText, PermanentError, UserError } from '../../base/errors.js';
import { makeFolder } from '../../base/make-folder.js';
import { adapterName, type PolicyAdapter } from '../../broker/policy-store.js';
import type { PublishedAdapter } from '../../wire/policy-manifest.js';

const suffix = '.safetensors';
const draftMark = '.draft-';
const blockBytes = 2 ** 20;

/**
 * The adapters of a run as files in a folder that the actors share: `FOLDER/RUN/adapter-VERSION-DIGEST.safetensors`. A file has
 * its name only once it is whole and on disk. One process writes at a time, the run's learner.
 */
export class AdapterFolderStore {
  readonly #folder: string; // of the run

  constructor(folder: string, run: string) {
    this.#folder = resolve(folder, run);
  }

  /**
   * Creates the run's folder, and removes files that no manifest names: those of a learner that was killed.
   *
   * @param named the addresses in the run's manifests.
   * @throws {UserError} if it cannot be written.
   */
  async open(named: ReadonlySet<string>): Promise<void> {
    try {
      await makeFolder(this.#folder);
      for (const name of await readdir(this.#folder)) {
        const path = join(this.#folder, name);
        if (isOurs(name) && !named.has(uriOf(path))) await rm(path, { force: true });
      }
      const probe = join(this.#folder, `${adapterName(0, '0'.repeat(16))}${draftMark}probe`);
      await (await open(probe, 'w')).close();
      await rm(probe);
    } catch (cause) {
      throw new UserError(
        `adapters cannot be written to ${this.#folder} (${errorText(cause)}): name with --adapter-store a folder that this learner can write and the actors can read, or nats`,
        { cause },
      );
    }
  }

  /** Writes an adapter, complete as soon as it has its name. @returns where it is. */
  async put(version: number, { bytes, ...scale }: PolicyAdapter): Promise<PublishedAdapter> {
    const digest = sha256(bytes);
    const path = join(this.#folder, adapterName(version, digest) + suffix);
    const draft = path + draftMark + randomBytes(4).toString('hex');
    try {
      await using file = await open(draft, 'w', 0o644); // actors may be other users
      await file.writeFile(bytes);
      await file.sync();
    } catch (caught) {
      await rm(draft, { force: true });
      throw caught;
    }
    await rename(draft, path);
    await syncFolder(this.#folder);
    return { uri: uriOf(path), sha256: digest, bytes: bytes.byteLength, ...scale };
  }
}

/** Deletes an adapter that a learner of the run has written to some folder; a missing one is not an error. */
export async function deleteAdapterFile(
  run: string,
  { uri }: Pick<PublishedAdapter, 'uri'>,
): Promise<void> {
  const path = pathOf(uri);
  if (path === undefined || !isOurs(basename(path)) || basename(dirname(path)) !== run) return;
  await rm(path, { force: true });
}

/** The path of an adapter that is a file; undefined if it is elsewhere. */
export function pathOf(uri: string): string | undefined {
  return uri.startsWith('file:') ? fileURLToPath(uri) : undefined;
}

/**
 * Reads an adapter from a file into one block of memory, with its SHA-256 computed on the way.
 *
 * @param path without symbolic links.
 * @throws {PermanentError} if it is not the expected file.
 * @throws {Error} if it is not there, or not whole: other machines may see a new file late.
 */
export async function readAdapterFile(
  path: string,
  { bytes, sha256: expected }: Pick<PublishedAdapter, 'bytes' | 'sha256'>,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const unreadable = (cause: unknown) => {
    throw new Error(`${path} cannot be read: ${errorText(cause)}`, { cause });
  };
  const found = await stat(path).catch(unreadable); // before it is opened: a pipe would be waited for
  if (!found.isFile()) throw new PermanentError(`${path} is not a file`);
  await using file = await open(path, 'r').catch(unreadable);
  if (found.size > bytes) {
    throw new PermanentError(`${path} has ${found.size} bytes, but ${bytes} are expected`);
  }
  const content = new Uint8Array(bytes);
  const hash = createHash('sha256');
  for (let filled = 0; filled < bytes;) {
    signal.throwIfAborted();
    const block = content.subarray(filled, filled + blockBytes);
    const { bytesRead } = await file.read(block, 0, block.byteLength, filled);
    if (bytesRead === 0) {
      throw new Error(`${path} has ${filled} bytes so far, of the ${bytes} that are expected`);
    }
    hash.update(block.subarray(0, bytesRead));
    filled += bytesRead;
  }
  const digest = hash.digest('hex');
  if (digest === expected) return content;
  throw new PermanentError(`${path} has SHA-256 ${digest}, but ${expected} is expected`);
}

function uriOf(path: string): string {
  return pathToFileURL(path).href;
}

/** Whether a file of this name was written here; a folder of the user's may hold others. */
function isOurs(name: string): boolean {
  return /^adapter-\d+-[0-9a-f]{16}\.safetensors(\.draft-\w+)?$|^adapter-\d+-[0-9a-f]{16}\.draft-probe$/.test(
    name,
  );
}
