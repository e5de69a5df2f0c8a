import { openSync } from 'node:fs';
import { pino } from 'pino';
import { LogStream } from '../../shared/service/telemetry/log-stream.js';
import { loggerOptions, type Logger } from '../../shared/service/telemetry/logger.js';

/** The log of an offbeat command: standard output is for its results. */
export function fileLogger(service: string, path: string): Logger {
  return pino(
    {
      base: { service, pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      ...loggerOptions(),
    },
    new LogStream(openSync(path, 'a')),
  );
}

/** The same for a command that has no folder: warnings and worse, on standard error. */
export function warningLogger(service: string): Logger {
  return pino(
    { level: 'warn', base: { service }, ...loggerOptions() },
    new LogStream(process.stderr.fd),
  );
}

/** Discards everything: failures are thrown, and the caller reports them. */
export function silentLogger(): Logger {
  return pino({ level: 'silent' });
}
