import { UserError } from '../base/errors.js';
import { userErrorCode } from '../base/exit-codes.js';
import { onParentGone } from './parent-pipe.js';
import { checkLogLevel, createLogger, type Logger } from './telemetry/logger.js';
import { startTracing } from './telemetry/tracing.js';
import { printError } from './telemetry/print-error.js';

export interface ServiceContext {
  readonly log: Logger;
  /** Aborts at the first SIGINT or SIGTERM: every loop, wait and fetch takes it. */
  readonly signal: AbortSignal;
}

/** Signals this close together count as one: under npm, Ctrl-C arrives from the terminal and from npm. */
const duplicateSignalMs = 1_000;

/** How long an orphan may take to finish: its broker and backend are stopping too. */
const orphanGraceMs = 5_000;

/**
 * Runs a service until `main` returns. The first signal asks it to finish; a later one exits at once. Exit
 * code 0 after a clean end, 1 after a crash, 2 after a user error.
 *
 * With OFFBEAT_PARENT_PIPE=1 it also finishes when its standard input closes, that is, when the launcher has died.
 */
export async function runService(
  service: string,
  main: (context: ServiceContext) => Promise<void>,
): Promise<void> {
  const log = createLogger(service);
  // Other output is for people; an error such as a full disk must not end the service.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined);
  const shutdown = new AbortController();
  let askedAt = 0; // ms since the epoch
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.on(name, () => {
      if (shutdown.signal.aborted) {
        if (Date.now() - askedAt < duplicateSignalMs) return;
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
    checkLogLevel(process.env);
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
