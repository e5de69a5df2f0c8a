import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { access, mkdir, readdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { errorText, UserError } from '../../shared/base/errors.js';
import { makeFolder } from '../../shared/base/make-folder.js';
import { adaptedModules, peftConfig } from '../../shared/model/lora.js';

/** An adapter as it is published. */
export interface AdapterFiles {
  readonly safetensors: Uint8Array; // a PEFT adapter_model.safetensors
  readonly rank: number;
  readonly alpha: number;
}

const prefix = 'offbeat-adapters-';
const suffixBytes = 3; // in hexadecimal digits
/** How often an actor must touch its folder. */
export const touchEveryMs = 60_000;
/** A folder that was not touched for so long belongs to an actor that has died, or that was suspended with its machine. */
const abandonedMs = 300_000;
/** Time in which an actor touches its folder again after a suspension. */
const wakingMs = 1.5 * touchEveryMs;
const sharedMemory = '/dev/shm';

/**
 * The folder in which this actor keeps the adapters that its engine reads, as long as they are loaded. The actor
 * touches it regularly. Another actor removes a folder that is no longer touched: process ids would show nothing,
 * since containers that share a volume have their own. That actor must also have watched the folder untouched for a
 * while. Its age alone proves nothing: after a suspension of the machine, or with a wrong clock, the folders of all
 * others look old.
 */
export class AdapterFolder implements AsyncDisposable {
  /** Folders that look abandoned: when each was touched, and since when this process sees that. */
  readonly #suspects = new Map<string, { readonly touchedAt: number; readonly seenAt: number }>();

  private constructor(
    private readonly parent: string,
    readonly path: string,
  ) {}

  /**
   * Creates the folder of an actor, and removes those of its predecessors that have long been untouched.
   *
   * @param parent where the engine can read it; undefined: shared memory if there is any, else the temporary folder.
   * @throws {UserError} if it cannot be written.
   */
  static async create(
    parent: string | undefined,
    run: string,
    actor: string,
  ): Promise<AdapterFolder> {
    const usual = (await isWritable(sharedMemory)) ? sharedMemory : tmpdir();
    const place = resolve(parent ?? usual); // the engine has another working folder
    // Not mkdtemp, whose folders only their owner can read: the engine may be another user.
    const path = join(
      place,
      `${prefix}${run}-${actor}-${randomBytes(suffixBytes).toString('hex')}`,
    );
    try {
      await makeFolder(place);
      await mkdir(path, { mode: 0o755 });
    } catch (cause) {
      throw new UserError(
        `cannot create ${path} for the engine's adapters (${errorText(cause)}); name with --adapter-dir a folder that this actor can write and the engine can read`,
        { cause },
      );
    }
    const folder = new AdapterFolder(place, path);
    await folder.touch();
    return folder;
  }

  /** Writes an adapter as a PEFT folder; complete as soon as it has its name. @returns its path. */
  async write(name: string, { safetensors, rank, alpha }: AdapterFiles): Promise<string> {
    const config = peftConfig({ rank, alpha }, adaptedModules(safetensors, rank));
    const path = join(this.path, name);
    const draft = `${path}.partial`;
    await rm(draft, { recursive: true, force: true });
    try {
      await mkdir(draft, { mode: 0o755 });
      await writeFile(join(draft, 'adapter_model.safetensors'), safetensors);
      await writeFile(join(draft, 'adapter_config.json'), config);
      await rename(draft, path);
    } catch (error) {
      await rm(draft, { recursive: true, force: true }); // half an adapter fills a small tmpfs as well as a whole one
      throw error;
    }
    return path;
  }

  async remove(name: string): Promise<void> {
    await rm(join(this.path, name), { recursive: true, force: true });
  }

  /**
   * Marks the folder as in use, and removes those that no longer are. Makes it again if it is gone: the next version can then be
   * written.
   *
   * @param steadyNow of a clock that is never set.
   */
  async touch(now = Date.now(), steadyNow = performance.now()): Promise<void> {
    await mkdir(this.path, { mode: 0o755, recursive: true });
    await utimes(this.path, now / 1_000, now / 1_000);
    for (const name of await readdir(this.parent)) {
      const path = join(this.parent, name);
      if (!name.startsWith(prefix) || path === this.path) continue;
      const touchedAt = await stat(path).then(
        ({ mtimeMs }) => mtimeMs,
        () => Infinity, // removed meanwhile
      );
      if (now - touchedAt < abandonedMs) continue;
      if (!this.#isPredecessor(path) && !this.#hasStayed(path, touchedAt, steadyNow)) continue;
      await rm(path, { recursive: true, force: true }).catch(() => undefined); // another user's
      this.#suspects.delete(path);
    }
  }

  /**
   * Whether a folder has this actor's name, so that its process has ended. It need not be watched before its removal:
   * an actor that is killed again and again watches no folder for long enough.
   */
  #isPredecessor(path: string): boolean {
    const end = -2 * suffixBytes;
    return path.slice(0, end) === this.path.slice(0, end);
  }

  /** Whether a folder has stayed untouched while this process watched it. */
  #hasStayed(path: string, touchedAt: number, steadyNow: number): boolean {
    const seen = this.#suspects.get(path);
    if (seen?.touchedAt === touchedAt) return steadyNow - seen.seenAt >= wakingMs;
    this.#suspects.set(path, { touchedAt, seenAt: steadyNow });
    return false;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}

function isWritable(folder: string): Promise<boolean> {
  return access(folder, constants.W_OK).then(
    () => true,
    () => false,
  );
}
