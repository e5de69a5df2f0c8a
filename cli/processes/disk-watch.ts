import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { UserError } from '../../shared/base/errors.js';
import { noRoomReason } from '../../shared/service/telemetry/disk-room.js';

const everyMs = 1_000;

/**
 * Bytes that must fit for the disk to count as having room; more after it was full, so that the state does not
 * change every second. With less, a write of nats-server may fail, which reports nothing.
 */
const probeBytes = { usually: 1024 * 1024, afterwards: 2 * 1024 * 1024 };

interface DiskWatchOptions {
  readonly folder: string;
  /** Reports of other writers: a large write fails before the small file of this watch does. */
  readonly ask?: () => Promise<string | undefined>;
  /** Called when the disk has become full. */
  readonly onFull: (reason: string) => void;
  /** Called when there is room again. */
  readonly onRoom: () => void;
}

/**
 * Tries every second to write a small file into a folder. The amount of free space would show neither
 * quotas nor a file system that became read-only.
 */
export class DiskWatch implements AsyncDisposable {
  readonly #options: DiskWatchOptions;
  readonly #over = new AbortController();
  readonly #watching: Promise<void>;
  #polling: Promise<void> | undefined;
  #reason: string | undefined;

  constructor(options: DiskWatchOptions) {
    this.#options = options;
    this.#watching = this.#watch();
  }

  /** Why nothing could be written at the last check. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** Checks now. */
  poll(): Promise<void> {
    this.#polling ??= this.#poll().finally(() => {
      this.#polling = undefined;
    });
    return this.#polling;
  }

  /** Resolves when there is room, or `signal` aborts. */
  async room(signal: AbortSignal): Promise<void> {
    while (this.#reason !== undefined && !signal.aborted && !this.#over.signal.aborted) {
      await sleep(everyMs / 4, undefined, { signal }).catch(() => undefined);
    }
  }

  /**
   * Whether there is room. If room has just appeared, this first waits until all writers have noticed it, or `signal`
   * aborts.
   */
  async hasRoomNow(signal: AbortSignal): Promise<boolean> {
    await this.poll(); // the disk may have been full only since the last check
    if (this.#reason !== undefined && (await this.#probe()) === undefined) await this.room(signal);
    return this.#reason === undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#watching;
  }

  async #watch(): Promise<void> {
    const { signal } = this.#over;
    while (!signal.aborted) {
      await this.poll();
      await sleep(everyMs, undefined, { signal }).catch(() => undefined);
    }
  }

  async #poll(): Promise<void> {
    const reason = (await this.#probe()) ?? (await this.#options.ask?.());
    if (this.#over.signal.aborted || (reason === undefined) === (this.#reason === undefined))
      return;
    this.#reason = reason;
    if (reason === undefined) this.#options.onRoom();
    else this.#options.onFull(reason);
  }

  #probe(): Promise<string | undefined> {
    const { usually, afterwards } = probeBytes;
    return roomTrouble(this.#options.folder, this.#reason === undefined ? usually : afterwards);
  }
}

/**
 * Refuses a start if its folder has no room for the files that the start itself writes.
 *
 * @throws {UserError} when there is no room for it.
 */
export async function assertRoom(folder: string): Promise<void> {
  const trouble = await roomTrouble(folder, probeBytes.afterwards);
  if (trouble !== undefined) throw new UserError(`${trouble}; make room, and start again`);
}

/** Why a file of this size cannot be written to a folder; undefined if it can. */
async function roomTrouble(folder: string, bytes: number): Promise<string | undefined> {
  const path = join(folder, '.room');
  try {
    await writeFile(path, Buffer.alloc(bytes, 1));
    return undefined;
  } catch (caught) {
    const reason = noRoomReason(caught);
    if (reason === undefined) return undefined; // the disk is not to blame
    return `${reason}: nothing can be written to ${folder}`;
  } finally {
    await rm(path, { force: true }).catch(() => undefined); // read-only
  }
}
