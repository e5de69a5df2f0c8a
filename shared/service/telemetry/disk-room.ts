import { setTimeout as sleep } from 'node:timers/promises';
import { Gauge } from 'prom-client';
import { errorText } from '../../base/errors.js';
import type { Logger } from './logger.js';

const diskFull = new Gauge({
  name: 'rl_disk_full',
  help: 'Is 1 while a file cannot be written: the disk is full, the quota used up or the file system read-only.',
  labelNames: ['kind'],
});

const codes = new Map([
  ['ENOSPC', 'the disk is full'],
  ['EDQUOT', 'the disk quota is used up'],
  ['EROFS', 'the file system is read-only'],
]);

/** Why each of these could not be written when it was last tried, in words. */
const failing = new Map<string, string>();

/** In words why a write failed for want of room; undefined if it failed for another reason. */
export function noRoomReason(caught: unknown): string | undefined {
  if (!(caught instanceof Error) || !('code' in caught)) return undefined;
  return codes.get(String(caught.code));
}

/** Whether a service that is not ready says that it is for want of room. */
export function isDiskTrouble(text: string): boolean {
  return [...codes.values()].some((reason) => text.startsWith(reason));
}

/** Why this process cannot write one of its files now; undefined while it can write them all. */
export function diskTrouble(): string | undefined {
  return failing.values().next().value;
}

/**
 * Records how a write went, for `diskTrouble` and the metric.
 *
 * @param file one of a few names: `log`, `metrics.jsonl`.
 */
export function recordWrite(file: string, reason: string | undefined): void {
  if (reason === undefined) failing.delete(file);
  else failing.set(file, `${reason}: cannot write ${file}; make room, and it goes on by itself`);
  diskFull.set({ kind: file }, reason === undefined ? 0 : 1);
}

/** Where it is said that something waits for room, and what ends the wait. */
export interface RoomWait {
  readonly log: Logger;
  readonly signal: AbortSignal;
}

const tryEveryMs = 1_000;
const logEveryMs = 10_000;

/**
 * Writes a file, and while the disk is full tries again every second.
 *
 * @param file one of a few names, for the metric: `metrics.jsonl`.
 * @param write is called again from its beginning after each failure.
 * @throws what `write` threw, if that was not for want of room or `signal` has aborted.
 */
export async function writeWhenRoom<T>(
  file: string,
  { log, signal }: RoomWait,
  write: () => Promise<T>,
): Promise<T> {
  let loggedAt = -Infinity;
  for (;;) {
    try {
      const result = await write();
      recordWrite(file, undefined);
      if (loggedAt > -Infinity) log.info({ file }, 'the disk has room again');
      return result;
    } catch (caught) {
      const reason = noRoomReason(caught);
      if (reason === undefined || signal.aborted) throw caught;
      recordWrite(file, reason);
      if (performance.now() - loggedAt > logEveryMs) {
        loggedAt = performance.now();
        log.warn({ file, reason: errorText(caught) }, 'disk full, waiting for room');
      }
      try {
        await sleep(tryEveryMs, undefined, { signal });
      } catch {
        throw caught;
      }
    }
  }
}
