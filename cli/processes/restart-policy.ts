import { userErrorCode } from '../../shared/base/exit-codes.js';
import type { Exit } from './exit.js';

/** Enough for a passing fault; a process that dies again and again has a cause that needs a person. */
export const maxRestarts = 5;

/** A process that lived this long has recovered: its earlier deaths no longer count. */
export const recoveredAfterMs = 60_000;

/**
 * How long to wait before a process is started again: 1 s, doubling with each restart.
 *
 * @param restarts how often it was restarted since it last recovered.
 * @returns milliseconds, or undefined when starting it again cannot help.
 */
export function restartDelayMs(exit: Exit, restarts: number): number | undefined {
  if (exit.code === userErrorCode || exit.failure !== undefined) return undefined;
  return restarts >= maxRestarts ? undefined : 1_000 * 2 ** restarts;
}

/** The restarts that count, given how many there were before this life of `livedMs`. */
export function countedRestarts(restarts: number, livedMs: number): number {
  return livedMs >= recoveredAfterMs ? 0 : restarts;
}
