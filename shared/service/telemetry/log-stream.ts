import { writeSync } from 'node:fs';
import { Counter } from 'prom-client';
import { noRoomReason, recordWrite } from './disk-room.js';

export const droppedLines = new Counter({
  name: 'rl_log_lines_dropped_total',
  help: 'Lines missing from the log, because they were repeated too often or the disk was full for long.',
  labelNames: ['reason'],
});

/** Maximum length of the lines that wait for disk space, in UTF-16 code units; further lines are dropped. */
const maxWaiting = 1_000_000;
const retryEveryMs = 1_000;
const busyWaitMs = 20;

const exitHandlers: (() => void)[] = [];

/** Runs `work` when the process exits, in the order of the calls. */
export function atExit(work: () => void): void {
  if (exitHandlers.length === 0) {
    process.once('exit', () => {
      for (const handler of exitHandlers) handler();
    });
  }
  exitHandlers.push(work);
}

/**
 * Writes a log to a file descriptor. A failed write never ends the process. While the disk is full, new lines
 * wait in memory and are written in order when there is space again.
 */
export class LogStream {
  readonly #fd: number;
  readonly #write: (fd: number, bytes: Uint8Array) => number;
  #waiting: string[] = [];
  #waitingLength = 0; // of the strings
  #begun: Uint8Array | undefined; // the rest of a partly written line
  #retry: NodeJS.Timeout | undefined;
  #isGone = false; // the reader of the pipe has gone

  constructor(fd: number, write: (fd: number, bytes: Uint8Array) => number = writeSync) {
    this.#fd = fd;
    this.#write = write;
    atExit(() => {
      this.#flush();
    });
  }

  /** Called by pino with each line. */
  write(line: string): void {
    if (this.#isGone) return;
    if (this.#waitingLength + line.length > maxWaiting) {
      droppedLines.inc({ reason: 'disk_full' });
      return;
    }
    this.#waiting.push(line);
    this.#waitingLength += line.length;
    if (this.#retry === undefined) this.#flush();
  }

  /** Writes as many waiting lines as possible. */
  #flush(): void {
    clearInterval(this.#retry);
    this.#retry = undefined;
    try {
      while (this.#begun !== undefined || this.#waiting.length > 0) {
        this.#begun ??= Buffer.from(this.#waiting[0]!);
        const written = this.#writeSome(this.#begun);
        if (written < this.#begun.byteLength) {
          this.#begun = this.#begun.subarray(written);
          continue;
        }
        this.#begun = undefined;
        this.#waitingLength -= this.#waiting.shift()!.length;
      }
      recordWrite('log', undefined);
    } catch (caught) {
      if (isOf(caught, 'EPIPE')) {
        this.#isGone = true;
        this.#waiting = [];
        return;
      }
      recordWrite('log', noRoomReason(caught));
      this.#retry = setInterval(() => {
        this.#flush();
      }, retryEveryMs).unref();
    }
  }

  /** Waits for a slow reader, as `console.log` does, so that the last lines before an exit get out. */
  #writeSome(bytes: Uint8Array): number {
    for (let tries = 0; ; tries++) {
      try {
        return this.#write(this.#fd, bytes);
      } catch (caught) {
        if (!isOf(caught, 'EAGAIN') || tries === 50) throw caught;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, busyWaitMs);
      }
    }
  }
}

function isOf(caught: unknown, code: string): boolean {
  return caught instanceof Error && 'code' in caught && caught.code === code;
}
