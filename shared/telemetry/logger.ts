import { pino, type Logger } from 'pino';

export type { Logger };

/** One JSON line an event on standard output, with the service's name; `LOG_LEVEL` chooses how much. */
export function createLogger(service: string): Logger {
  return pino({
    base: { service, pid: process.pid },
    level: process.env['LOG_LEVEL'] ?? 'info',
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: ['apiKey', '*.apiKey', 'headers["x-api-key"]'], censor: '[redacted]' },
  });
}
