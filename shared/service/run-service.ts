import { UserError } from '../base/errors.js';
import { userErrorCode } from '../base/exit-codes.js';
import { onParentGone } from './parent-pipe.js';
import { createLogger, type Logger } from './telemetry/logger.js';
import { startTracing } from './telemetry/tracing.js';
import { printError } from './telemetry/print-error.js';

export interface ServiceContext {
  readonly log: Logger;
  /** Aborts at the first SIGINT or SIGTERM: every loop, wait and fetch takes it. */
  readonly signal: AbortSignal;
}

/** Signals this close together are one wish: under npm, Ctrl-C arrives from the terminal and from npm. */
const sameWishMs = 1_000;

/** How long an orphan may take to finish: the broker and the backend that it needs are going too. */
const orphanGraceMs = 5_000;

/**
 * Runs a service until `main` returns. The first signal asks it to finish; a later one ends it at
 * once. Exit code 0 after a clean end, 1 after a crash, 2 when the user has something to change.
 *
 * With OFFBEAT_PARENT_PIPE=1 it also finishes when its standard input closes, that is, when the
 * launcher died in whatever way.
 */
export async function runService(
  service: string,
  main: (context: ServiceContext) => Promise<void>,
): Promise<void> {
  const log = createLogger(service);
  // What else is written there is for people; a disk that is full under it must not end the service.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined);
  const shutdown = new AbortController();
  let askedAt = 0; // ms since the epoch
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.on(name, () => {
      if (shutdown.signal.aborted) {
        if (Date.now() - askedAt < sameWishMs) return;
        process.exit(130);
      }
      askedAt = Date.now();
      log.info({ signal: name }, 'shutting down');
      shutdown.abort();
    });
  }
  onParentGone(process.env, () => {
    log.warn('the launcher is gone, shutting down');
    shutdown.abort();
    setTimeout(() => process.exit(1), orphanGraceMs).unref();
  });
  try {
    await using _tracing = await startTracing(service, process.env, log);
    await main({ log, signal: shutdown.signal });
  } catch (err) {
    if (err instanceof UserError) {
      log.fatal(err.message);
      printError(err.message);
      process.exitCode = userErrorCode;
    } else {
      log.fatal({ err }, 'crashed');
      process.exitCode = 1;
    }
  }
}
