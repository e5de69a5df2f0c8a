import { pino } from 'pino';
import { redaction, type Logger } from '../../../shared/telemetry/logger.js';

/** The log of a command of ours: standard output is for the person. */
export function fileLogger(service: string, path: string): Logger {
  return pino(
    { base: { service, pid: process.pid }, timestamp: pino.stdTimeFunctions.isoTime, ...redaction },
    pino.destination({ dest: path, sync: true }),
  );
}

/** The same for a command that has no folder: warnings and worse, on standard error. */
export function warningLogger(service: string): Logger {
  return pino({ level: 'warn', base: { service }, ...redaction }, pino.destination(2));
}
