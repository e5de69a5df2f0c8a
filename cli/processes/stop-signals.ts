import { noRoomReason } from '../../shared/service/telemetry/disk-room.js';
import { onParentGone } from '../../shared/service/parent-pipe.js';

/** Signals this close together are one wish: npm passes on the Ctrl-C that the terminal sent us too. */
const sameWishMs = 1_000;

export interface StopSignals {
  /** Aborts at the first wish to stop. */
  readonly stop: AbortSignal;
  /** Aborts at the second one: no more waiting. */
  readonly hurry: AbortSignal;
  /** 130 after Ctrl-C, 143 after SIGTERM, as a shell would say it; undefined while nobody asked. */
  exitCode(): number | undefined;
}

const exitCodes = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

/**
 * Listens for SIGINT, SIGTERM, SIGHUP, and for the end of whoever reads our output or, by
 * OFFBEAT_PARENT_PIPE, holds our input; from now on.
 *
 * @param farewell what is reported at the first wish to stop.
 */
export function listenForStop(report: (line: string) => void, farewell: string): StopSignals {
  const stop = new AbortController();
  const hurry = new AbortController();
  let askedAt = 0; // ms since the epoch
  let exitCode: number | undefined;

  function ask(code: number): void {
    if (!stop.signal.aborted) {
      askedAt = Date.now();
      exitCode = code;
      stop.abort();
      report(`${farewell}; once more to stop at once`);
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
