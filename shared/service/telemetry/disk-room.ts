import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { Gauge } from 'prom-client';
import { errorText } from '../../base/errors.js';

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

/** Files whose last write failed, with the reason in words. */
const failing = new Map<string, string>();

/** Returns why a write failed for lack of disk space, in words; undefined if it failed for another reason. */
export function noRoomReason(caught: unknown): string | undefined {
  if (!(caught instanceof Error) || !('code' in caught)) return undefined;
  return codes.get(String(caught.code));
}

/** Whether a service's reason for not being ready is lack of disk space. */
export function isDiskTrouble(text: string): boolean {
  return [...codes.values()].some((reason) => text.startsWith(reason));
}

/** Returns why this process cannot write one of its files; undefined while all can be written. */
export function diskTrouble(): string | undefined {
  return failing.values().next().value;
}

/**
 * Records the outcome of a write, for `diskTrouble` and the metric.
 *
 * @param file one of a few names: `log`, `metrics.jsonl`.
 */
export function recordWrite(file: string, reason: string | undefined): void {
  if (reason === undefined) failing.delete(file);
  else failing.set(file, `${reason}: cannot write ${file}; make room, and it continues by itself`);
  diskFull.set({ kind: file }, reason === undefined ? 0 : 1);
}

/** The log of a wait for disk space, and the signal that ends it. */
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
 * @param write called again from its beginning after each failure.
 * @throws the error of `write`, if it is not a lack of disk space or the wait's signal has aborted.
 */
export async function writeWhenRoom<T>(
  file: string,
  wait: RoomWait,
  write: () => Promise<T>,
): Promise<T> {
  try {
    return await untilWritten(file, wait, write);
  } catch (caught) {
    recordWrite(file, undefined); // nothing waits for room any more
    throw caught;
  }
}

async function untilWritten<T>(
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
