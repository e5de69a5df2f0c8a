import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { z } from 'zod';
import { sha256 } from '../shared/base/bytes.js';
import { replaceFile } from '../shared/base/durable-file.js';
import { errorText } from '../shared/base/errors.js';
import { unusableFolder } from '../shared/base/make-folder.js';
import { readJson } from '../shared/base/read-json.js';
import { type RoomWait, writeWhenRoom } from '../shared/service/telemetry/disk-room.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import { UserMetadata } from '../shared/tinker/api.js';
import { checkName, isName, type TinkerPath } from '../shared/tinker/tinker-path.js';
import { makeFolders, removeFolder, repairFolders, writeFolder } from './durable-folder.js';
import { notFound } from './http-api.js';

/**
 * `weights` hold the adapter and the optimizer, to resume training; `sampler_weights` only the adapter, and
 * `external_weights` too, of which a client gets a link to each file.
 */
export const checkpointKinds = ['weights', 'sampler_weights', 'external_weights'] as const;

/** Returns `tinker://<run>/<kind>/<name>`. */
export function formatTinkerPath({ runId, kind, name }: TinkerPath): string {
  return `tinker://${runId}/${kind}/${name}`;
}

/** Returns `checkpoint-0001`, `checkpoint-0002`, …: one above the highest number in use. */
export function nextAutomaticName(names: Iterable<string>): string {
  let last = 0;
  for (const name of names) {
    const [, number] = /^checkpoint-([0-9]{4,9})$/.exec(name) ?? [];
    if (number !== undefined) last = Math.max(last, Number(number));
  }
  return `checkpoint-${String(last + 1).padStart(4, '0')}`;
}

/** The content of `metadata.json`: everything that a loader needs before it reads weights. */
export const CheckpointMetadata = z.object({
  v: z.literal(1),
  training_run_id: z.string(),
  kind: z.enum(checkpointKinds),
  name: z.string(),
  created_at: z.iso.datetime(),
  base_model: z.string(),
  base_model_digest: z.string(), // of the weights that the adapter was trained on
  lora_rank: z.int().positive(),
  lora_alpha: z.number().positive(),
  train_attn: z.boolean(),
  train_mlp: z.boolean(),
  train_unembed: z.boolean(), // false; the output head is never adapted, though older files say what was asked
  adapter_sha256: z.string(),
  size_bytes: z.int().nonnegative(),
  user_metadata: UserMetadata.nullish(), // of the training run
  checkpoint_user_metadata: UserMetadata.optional(),
  public: z.boolean().optional(),
  expires_at: z.iso.datetime().nullish(),
  unnamed: z.boolean().optional(), // its client gave no name and has not published it or said how long to keep it
});
export type CheckpointMetadata = z.infer<typeof CheckpointMetadata>;

/** The properties that decide whether the weights of one run fit another. */
export type Geometry = Pick<
  CheckpointMetadata,
  'base_model' | 'base_model_digest' | 'lora_rank' | 'lora_alpha' | 'train_attn' | 'train_mlp'
>;

/** Returns why weights of geometry `saved` cannot be loaded into `wanted`, or undefined if they can. */
export function incompatibility(saved: Geometry, wanted: Geometry): string | undefined {
  const keys = [
    'base_model',
    'base_model_digest',
    'lora_rank',
    'lora_alpha',
    'train_attn',
    'train_mlp',
  ] as const;
  const differing = keys.filter((key) => saved[key] !== wanted[key]);
  if (differing.length === 0) return undefined;
  return differing
    .map((key) => `${key} is ${saved[key]} in the checkpoint and ${wanted[key]} here`)
    .join('; ');
}

/** Returns when a checkpoint expires that is kept for `ttlSeconds` from now; null: never. */
export function expiryAfter(ttlSeconds: number | undefined): string | null {
  return ttlSeconds === undefined ? null : new Date(Date.now() + ttlSeconds * 1_000).toISOString();
}

/** Whether the time of a checkpoint is over. @param now in ms since the epoch. */
export function isOver({ expires_at }: CheckpointMetadata, now: number): boolean {
  return Date.parse(expires_at ?? '') <= now;
}

export function pathOf(metadata: CheckpointMetadata): TinkerPath {
  return { runId: metadata.training_run_id, kind: metadata.kind, name: metadata.name };
}

/** The files of a checkpoint, with the adapter in PEFT's layout. */
export interface CheckpointFiles {
  readonly adapter: Uint8Array; // adapter/adapter_model.safetensors
  readonly adapterConfig: string; // adapter/adapter_config.json
  readonly optimizer?: Uint8Array; // optimizer/optimizer.safetensors
}

/** The files of an adapter, in PEFT's layout. */
export const adapterFiles = ['adapter_config.json', 'adapter_model.safetensors'] as const;

const metadataFile = 'metadata.json';
const adapterConfigFile = `adapter/${adapterFiles[0]}`;
const adapterFile = `adapter/${adapterFiles[1]}`;
const optimizerFile = 'optimizer/optimizer.safetensors';

/**
 * The checkpoints on disk, in `<root>/<run>/<kind>/<name>/`; they survive a restart of the backend.
 * Each is written atomically and replaces one of the same name, as in TuFT.
 */
export class CheckpointStore {
  readonly #byPath = new Map<string, CheckpointMetadata>();
  readonly #lastWrites = new Map<string, Promise<unknown>>(); // by path, while one is in progress
  readonly #lastUses = new Map<string, Promise<unknown>>(); // likewise

  private constructor(
    private readonly root: string,
    private readonly wait: RoomWait,
  ) {}

  /**
   * Reads the checkpoints under `root`, which is created if missing; a broken one is logged and skipped.
   *
   * @param signal aborts waits for free disk space.
   * @throws {UserError} if `root` cannot be created.
   */
  static async open(
    root: string,
    log: Logger,
    signal: AbortSignal = new AbortController().signal,
  ): Promise<CheckpointStore> {
    const store = new CheckpointStore(resolve(root), { log, signal });
    try {
      await writeWhenRoom('checkpoints', store.wait, () => makeFolders(resolve(root)));
    } catch (caught) {
      if (signal.aborted) throw caught;
      throw unusableFolder(resolve(root), '--checkpoint-dir', caught);
    }
    // Others, such as the `lost+found` of a disk, cannot be a run's, and need not be readable.
    for (const run of (await foldersIn(root)).filter(isName)) {
      for (const kind of checkpointKinds) {
        const parent = join(root, run, kind);
        const names = await repairFolders(parent).then(() => foldersIn(parent), skipMissing);
        for (const name of names) {
          const folder = join(parent, name);
          try {
            const metadata = CheckpointMetadata.parse(await readJson(join(folder, metadataFile)));
            store.#byPath.set(formatTinkerPath({ runId: run, kind, name }), metadata);
          } catch (error) {
            log.warn({ folder, reason: errorText(error) }, 'unreadable checkpoint skipped');
          }
        }
      }
    }
    return store;
  }

  /** The checkpoints of one run or of all runs, oldest first. */
  list(run?: string): CheckpointMetadata[] {
    return [...this.#byPath.values()]
      .filter((metadata) => run === undefined || metadata.training_run_id === run)
      .sort((a, b) => a.created_at.localeCompare(b.created_at));
  }

  has(path: TinkerPath): boolean {
    return this.#byPath.has(formatTinkerPath(path));
  }

  /** @throws {ApiError} 404 */
  get(path: TinkerPath): CheckpointMetadata {
    const metadata = this.#byPath.get(formatTinkerPath(path));
    if (metadata === undefined) throw notFound(`checkpoint ${formatTinkerPath(path)} not found`);
    return metadata;
  }

  /** The folder of the adapter's two files. */
  adapterFolder(path: TinkerPath): string {
    return join(this.#folder(path), 'adapter');
  }

  /** Saves a checkpoint; resolves once it would survive a power failure. Waits while the disk is full. */
  async save(
    about: Omit<CheckpointMetadata, 'adapter_sha256' | 'size_bytes'>,
    { adapter, adapterConfig, optimizer }: CheckpointFiles,
  ): Promise<CheckpointMetadata> {
    const sizes = [adapter.byteLength, adapterConfig.length, optimizer?.byteLength ?? 0];
    const metadata: CheckpointMetadata = {
      ...about,
      adapter_sha256: sha256(adapter),
      size_bytes: sizes.reduce((sum, size) => sum + size, 0),
    };
    const files = new Map<string, Uint8Array | string>([
      [metadataFile, textOf(metadata)],
      [adapterFile, adapter],
      [adapterConfigFile, adapterConfig],
    ]);
    if (optimizer !== undefined) files.set(optimizerFile, optimizer);
    const path = pathOf(metadata);
    await this.#inTurn(path, async () => {
      await writeWhenRoom('checkpoints', this.wait, async () => {
        await makeFolders(dirname(this.#folder(path)));
        await writeFolder(this.#folder(path), files, (swap) =>
          this.#alone(path, async () => {
            await swap();
            this.#byPath.set(formatTinkerPath(path), metadata);
          }),
        );
      });
    });
    return metadata;
  }

  /** @throws {ApiError} 404 */
  read(path: TinkerPath): Promise<CheckpointFiles> {
    return this.#alone(path, async () => {
      this.get(path);
      const read = (file: string) => readFile(join(this.#folder(path), file));
      const [adapter, adapterConfig, optimizer] = await Promise.all([
        read(adapterFile),
        read(adapterConfigFile),
        read(optimizerFile).catch(skipMissing),
      ]);
      return {
        adapter,
        adapterConfig: adapterConfig.toString('utf8'),
        ...(optimizer instanceof Uint8Array && { optimizer }),
      };
    });
  }

  /** Copies a checkpoint into a run of its own, under the same name. @throws {ApiError} 404 */
  async copy(path: TinkerPath, runId: string, expiresAt: string | null): Promise<TinkerPath> {
    const about = { ...this.get(path), training_run_id: runId, public: false, unnamed: undefined };
    const created_at = new Date().toISOString();
    const files = await this.read(path);
    return pathOf(await this.save({ ...about, created_at, expires_at: expiresAt }, files));
  }

  /** @throws {ApiError} 404 */
  async change(
    path: TinkerPath,
    changes: Pick<CheckpointMetadata, 'public' | 'expires_at'>,
  ): Promise<void> {
    await this.#inTurn(path, async () => {
      const metadata = { ...this.get(path), ...changes, unnamed: undefined };
      try {
        await writeWhenRoom('checkpoints', this.wait, () =>
          replaceFile(join(this.#folder(path), metadataFile), textOf(metadata)),
        );
      } catch (error) {
        // Once a deletion that runs has ended, so that its 404 is thrown and not that a file is missing.
        await this.#alone(path, () => Promise.resolve(this.get(path)));
        throw error;
      }
      if (this.has(path)) this.#byPath.set(formatTinkerPath(path), metadata);
    });
  }

  /** The checkpoints whose time is over. @param now in ms since the epoch. */
  expired(now: number): CheckpointMetadata[] {
    return this.list().filter((saved) => isOver(saved, now));
  }

  /**
   * @param onGone is called once the name is free, before the files are deleted.
   * @param isDue whether it is still to be deleted when its turn has come.
   * @throws {ApiError} 404
   */
  async delete(
    path: TinkerPath,
    onGone: () => void = () => undefined,
    isDue: (saved: CheckpointMetadata) => boolean = () => true,
  ): Promise<void> {
    await this.#alone(path, async () => {
      if (!isDue(this.get(path))) return;
      const folder = this.#folder(path);
      const forget = () => {
        this.#byPath.delete(formatTinkerPath(path));
        onGone();
      };
      try {
        await removeFolder(folder, forget);
      } catch (error) {
        if (!existsSync(folder)) forget();
        throw error;
      }
    });
  }

  /** Writes one after another to a path: changed metadata must not be those of a checkpoint that was replaced meanwhile. */
  #inTurn(path: TinkerPath, write: () => Promise<void>): Promise<void> {
    return afterLast(this.#lastWrites, formatTinkerPath(path), write);
  }

  /**
   * Does one thing at a time with the files of a path, so that none is read or deleted while they are replaced. Unlike a write,
   * which may wait for room on the disk, each takes a moment.
   */
  #alone<T>(path: TinkerPath, use: () => Promise<T>): Promise<T> {
    return afterLast(this.#lastUses, formatTinkerPath(path), use);
  }

  #folder({ runId, kind, name }: TinkerPath): string {
    return join(this.root, checkName(runId), kind, checkName(name));
  }
}

function textOf(metadata: CheckpointMetadata): string {
  return `${JSON.stringify(metadata, undefined, 2)}\n`;
}

async function foldersIn(path: string): Promise<string[]> {
  const entries = await readdir(path, { withFileTypes: true });
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
}

/** A catch handler that ignores a missing file or folder and rethrows any other error. */
function skipMissing(error: unknown): never[] {
  if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
  throw error;
}

/** Does work once the last one under the same key has ended, and keeps it there until it has ended itself. */
async function afterLast<T>(
  last: Map<string, Promise<unknown>>,
  key: string,
  work: () => Promise<T>,
): Promise<T> {
  const working = (last.get(key) ?? Promise.resolve()).then(work);
  const ended = working.catch(() => undefined);
  last.set(key, ended);
  try {
    return await working;
  } finally {
    if (last.get(key) === ended) last.delete(key);
  }
}
