import { pino, type Logger, type LoggerOptions } from 'pino';
import { withoutSecrets } from './secrets.js';

export type { Logger };

const secretFields = [
  'apiKey',
  'api_key',
  'x-api-key',
  'password',
  'pass',
  'token',
  'authorization',
];

/** One JSON line an event on standard output, with the service's name; `LOG_LEVEL` chooses how much. */
export function createLogger(service: string): Logger {
  return pino({
    base: { service, pid: process.pid },
    level: process.env['LOG_LEVEL'] ?? 'info',
    timestamp: pino.stdTimeFunctions.isoTime,
    ...redaction,
  });
}

/** What keeps secrets out of a log: by the names of fields, and by what secrets look like in any text. */
export const redaction: LoggerOptions = {
  redact: {
    paths: secretFields.flatMap((field) => [`["${field}"]`, `*["${field}"]`, `*.*["${field}"]`]),
    censor: '[redacted]',
  },
  // An error may quote what it was given, in its message, its stack or its cause.
  hooks: { streamWrite: withoutSecrets },
};
