import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { noRoomReason } from '../../shared/service/telemetry/disk-room.js';
import { onParentGone } from '../../shared/service/parent-pipe.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { fileLogger } from './file-logger.js';
import { printError } from '../../shared/service/telemetry/print-error.js';

/** Signals this close together count as one: npm forwards the Ctrl-C that the terminal also sent us. */
const sameWishMs = 1_000;

export interface StopSignals {
  /** Aborts at the first signal. */
  readonly stop: AbortSignal;
  /** Aborts at the second one: no more waiting. */
  readonly hurry: AbortSignal;
  /** 130 after Ctrl-C, 143 after SIGTERM, as in a shell; undefined before the first signal. */
  exitCode(): number | undefined;
}

/** The exit code after each signal, as in a shell. */
export const exitCodes = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

/**
 * Listens for SIGINT, SIGTERM and SIGHUP, and for the end of the process that reads our output or, with
 * OFFBEAT_PARENT_PIPE, holds our input.
 *
 * @param stopNotice what is reported at the first signal.
 */
export function listenForStop(report: (line: string) => void, stopNotice: string): StopSignals {
  const stop = new AbortController();
  const hurry = new AbortController();
  let askedAt = 0; // ms since the epoch
  let exitCode: number | undefined;

  function ask(code: number): void {
    if (!stop.signal.aborted) {
      askedAt = Date.now();
      exitCode = code;
      stop.abort();
      report(`${stopNotice}; once more to stop at once`);
    } else if (Date.now() - askedAt >= sameWishMs) hurry.abort();
  }

  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(name, () => {
      ask(exitCodes[name]);
    });
  }
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error) => {
      if (noRoomReason(error) !== undefined) return; // it is a file, and its disk is full
      if (!stop.signal.aborted) ask(brokenPipeCode);
    });
  }
  onParentGone(process.env, () => {
    ask(exitCodes.SIGTERM);
  });
  return { stop: stop.signal, hurry: hurry.signal, exitCode: () => exitCode };
}

/** As a shell names a program that SIGPIPE ended: `npm start | head`. */
const brokenPipeCode = 141;

/** The resources of a short command. */
interface ShortCommand {
  readonly stop: StopSignals;
  readonly folder: string; // temporary, deleted at its end
  readonly log: Logger; // in that folder
}

/**
 * Runs a command that can be stopped at any wait.
 *
 * @param stopNotice reported at the first signal; without it the command ends at once.
 * @returns the command's exit code, or the signal's if that broke it off.
 * @throws what the command throws.
 */
export async function shortCommand(
  name: string,
  stopNotice: string | undefined,
  work: (command: ShortCommand) => Promise<number>,
): Promise<number> {
  const report = (line: string) => {
    if (stopNotice !== undefined) printError(line);
  };
  const stop = listenForStop(report, stopNotice ?? '');
  const folder = await mkdtemp(join(tmpdir(), `offbeat-${name}-`));
  try {
    const log = fileLogger(name, join(folder, 'log'));
    return await untilStopped(stop, () => work({ stop, folder, log }));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Does a command's work, whose waits `stop` aborts.
 *
 * @returns its exit code, or the signal's if that broke it off.
 */
export async function untilStopped(
  stop: StopSignals,
  work: () => Promise<number>,
): Promise<number> {
  try {
    return await work();
  } catch (caught) {
    const exitCode = stop.exitCode();
    if (exitCode !== undefined) return exitCode; // the error is that of a wait that we aborted
    throw caught;
  }
}
