import { pino, type Level, type Logger, type LoggerOptions } from 'pino';
import { PermanentError, UserError } from '../../base/errors.js';
import type { Environment } from '../config.js';
import { atExit, LogStream } from './log-stream.js';
import { Repetitions, type RepetitionLimit } from './repetitions.js';
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

const levels = pino.levels.values as Readonly<Record<Level, number>>;
const logLevels = [...Object.keys(levels), 'silent'];

/** @throws {UserError} if `LOG_LEVEL` names no level. */
export function checkLogLevel(env: Environment): void {
  const level = logLevel(env);
  if (logLevels.includes(level)) return;
  throw new UserError(
    `LOG_LEVEL is ${JSON.stringify(level)}: expected one of ${logLevels.join(', ')}`,
  );
}

function logLevel(env: Environment): string {
  return env['LOG_LEVEL'] || 'info';
}

/**
 * Creates a logger that writes one JSON line per event to standard output. `LOG_LEVEL` sets the level; one that
 * `checkLogLevel` refuses is info, so that the refusal can be logged.
 */
export function createLogger(service: string): Logger {
  const level = logLevel(process.env);
  return pino(
    {
      base: { service, pid: process.pid },
      level: logLevels.includes(level) ? level : 'info',
      timestamp: pino.stdTimeFunctions.isoTime,
      ...loggerOptions(),
    },
    new LogStream(process.stdout.fd),
  );
}

/**
 * Options common to all logs. Secrets are removed by field name and by pattern in any text. Lines that repeat
 * too fast are counted instead: see `Repetitions`. Errors caused by others' input have no stack, since that
 * would only show our code.
 */
export function loggerOptions(): LoggerOptions {
  const repetitions = new Repetitions();
  atExit(() => {
    repetitions.summarize();
  });
  return {
    redact: {
      paths: secretFields.flatMap((field) => [`["${field}"]`, `*["${field}"]`, `*.*["${field}"]`]),
      censor: '[redacted]',
    },
    serializers: { err: serializedError },
    hooks: {
      // An error may quote its input in its message, stack or cause.
      streamWrite: withoutSecrets,
      logMethod(args, method, level) {
        const limit = limitOf(level);
        if (limit === undefined) {
          method.apply(this, args);
          return;
        }
        repetitions.log(kindOf(args, level), limit, (leftOut) => {
          method.apply(this, leftOut === undefined ? args : withCount(args, leftOut));
        });
      },
    },
  };
}

/** Logs the first 20 warnings of a kind, then one a second. Debug and fatal lines are never left out. */
function limitOf(level: number): RepetitionLimit | undefined {
  if (level < levels.info || level >= levels.fatal) return undefined;
  return level < levels.warn ? { inFull: 200, perSecond: 20 } : { inFull: 20, perSecond: 1 };
}

type LogArguments = readonly unknown[];

/**
 * Lines are of one kind if they have the same text and subject, so that one actor's failures do not hide another's.
 */
function kindOf(args: LogArguments, level: number): string {
  const [first, second] = args;
  if (typeof first !== 'object' || first === null) return `${level} ${String(first)}`;
  const fields = first as Readonly<Record<string, unknown>>;
  const about = [fields['subject'], fields['actor'], fields['file']].find(isText) ?? '';
  const text = first instanceof Error ? first.message : second;
  return `${level} ${String(text)} ${about}`;
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

function withCount([first, ...more]: LogArguments, leftOut: number): [object, ...string[]] {
  if (typeof first !== 'object' || first === null) return [{ leftOut }, String(first)];
  const fields = first instanceof Error ? { err: first } : first;
  return [{ ...fields, leftOut }, ...(more as string[])];
}

function serializedError(error: Error): unknown {
  if (!(error instanceof PermanentError)) return pino.stdSerializers.err(error);
  return { type: error.name, message: error.message };
}
