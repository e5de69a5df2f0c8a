import { userErrorCode } from '../../shared/base/exit-codes.js';
import type { Exit } from './managed-process.js';

/** Enough for a temporary fault; only the user can fix the cause of a process that dies again and again. */
export const maxRestarts = 5;

/** A process that has run for this long has recovered: its earlier deaths no longer count. */
const recoveredAfterMs = 60_000;

/** Decides when a process is started again: after 1 s, then after twice as long each time. */
export class Restarts {
  #count = 0;
  #hasWorked = false; // an earlier process of this start, with the same settings

  /** How many have been decided since a process last recovered. */
  get count(): number {
    return this.#count;
  }

  /**
   * Decides after an end.
   *
   * @param livedMs how long the process ran.
   * @returns the milliseconds to wait before the restart, or undefined when starting it again cannot help.
   */
  delayAfter(exit: Exit, livedMs: number): number | undefined {
    if (livedMs >= recoveredAfterMs) {
      this.#count = 0;
      this.#hasWorked = true;
    }
    // What a process that has worked cannot use any more may come back, such as the user's NATS server.
    const isHopeless = exit.code === userErrorCode && !this.#hasWorked;
    if (isHopeless || exit.failure !== undefined || this.#count >= maxRestarts) return undefined;
    return 1_000 * 2 ** this.#count++;
  }
}
