import { pino, type Logger } from 'pino';

/** A log that discards every line. */
export const silent = pino({ level: 'silent' });

/** A line of a log: its message and its fields. */
export interface LogLine {
  readonly msg: string;
  readonly [field: string]: unknown;
}

/** A log that keeps its lines. */
export function recordingLog(): { readonly log: Logger; readonly lines: readonly LogLine[] } {
  const lines: LogLine[] = [];
  const write = (line: string) => void lines.push(JSON.parse(line) as LogLine);
  return { log: pino({}, { write }), lines };
}
