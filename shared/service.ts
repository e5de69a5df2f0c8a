import { UserError } from './errors.js';
import { createLogger, type Logger } from './telemetry/logger.js';

export interface ServiceContext {
  readonly log: Logger;
  /** Aborts at the first SIGINT or SIGTERM: every loop, wait and fetch takes it. */
  readonly signal: AbortSignal;
}

/**
 * Runs a service until `main` returns. The first signal asks it to finish; a second one ends it at
 * once. Exit code 0 after a clean end, 1 after a crash, 2 when the user has something to change.
 */
export async function runService(
  service: string,
  main: (context: ServiceContext) => Promise<void>,
): Promise<void> {
  const log = createLogger(service);
  const shutdown = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.on(name, () => {
      if (shutdown.signal.aborted) process.exit(130);
      log.info({ signal: name }, 'shutting down');
      shutdown.abort();
    });
  }
  try {
    await main({ log, signal: shutdown.signal });
  } catch (err) {
    if (err instanceof UserError) {
      log.fatal(err.message);
      process.stderr.write(`${err.message}\n`);
      process.exitCode = 2;
    } else {
      log.fatal({ err }, 'crashed');
      process.exitCode = 1;
    }
  }
}
