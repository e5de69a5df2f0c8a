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
/** A folder that was not touched for so long belongs to an actor that has died. */
const abandonedMs = 300_000;
const sharedMemory = '/dev/shm';

/**
 * The folder in which this actor keeps the adapters that its engine reads, as long as they are loaded. It touches the
 * folder now and then; one that is no longer touched is removed by the next actor, since process ids mean nothing between
 * containers that share a volume.
 */
export class AdapterFolder implements AsyncDisposable {
  private constructor(
    private readonly parent: string,
    readonly path: string,
  ) {}

  /**
   * Creates the folder of an actor, and removes those of dead ones.
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
    const path = join(place, `${prefix}${run}-${actor}-${randomBytes(3).toString('hex')}`);
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
    await mkdir(draft, { mode: 0o755 });
    await writeFile(join(draft, 'adapter_model.safetensors'), safetensors);
    await writeFile(join(draft, 'adapter_config.json'), config);
    await rename(draft, path);
    return path;
  }

  async remove(name: string): Promise<void> {
    await rm(join(this.path, name), { recursive: true, force: true });
  }

  /** Marks the folder as in use, and removes those that no longer are. */
  async touch(now = Date.now()): Promise<void> {
    await utimes(this.path, now / 1_000, now / 1_000);
    for (const name of await readdir(this.parent)) {
      const path = join(this.parent, name);
      if (!name.startsWith(prefix) || path === this.path) continue;
      const touchedAt = await stat(path).then(
        ({ mtimeMs }) => mtimeMs,
        () => Infinity, // removed meanwhile
      );
      if (now - touchedAt < abandonedMs) continue;
      await rm(path, { recursive: true, force: true }).catch(() => undefined); // another user's
    }
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
