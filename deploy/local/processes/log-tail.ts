import { open } from 'node:fs/promises';

const tailBytes = 64 * 1024;

/**
 * The last lines of a process's log, in words: our services write a JSON object a line, of which
 * the time, the message and the error are what a person wants to see.
 *
 * @returns at most `count` lines, oldest first; none when the log does not exist.
 */
export async function logTail(path: string, count: number): Promise<string[]> {
  let text: string;
  try {
    await using file = await open(path);
    const { size } = await file.stat();
    const start = Math.max(0, size - tailBytes);
    const { buffer, bytesRead } = await file.read({
      buffer: Buffer.alloc(size - start),
      position: start,
    });
    text = buffer.toString('utf8', 0, bytesRead);
  } catch {
    return [];
  }
  const lines = text.split('\n').flatMap(readableLines);
  // A service tells its last words both as a log line and, plainly, on standard error.
  return lines.filter((line, i) => i === 0 || !lines[i - 1]!.endsWith(line)).slice(-count);
}

/** One line of a log as lines for people. */
export function readableLines(line: string): string[] {
  if (line.trim() === '') return [];
  let entry: unknown;
  try {
    entry = JSON.parse(line);
  } catch {
    return [line.trimEnd()];
  }
  if (typeof entry !== 'object' || entry === null || !('msg' in entry)) return [line];

  const { level, time, msg, err, service: _service, pid: _pid, ...fields } = entry as LogEntry;
  const levelName = levels[level ?? 30] ?? 'info';
  const clock = typeof time === 'string' ? `${time.slice(11, 19)} ` : '';
  const details = Object.entries(fields).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  const [first = '', ...more] = String(msg).split('\n');
  const trace = typeof err?.stack === 'string' ? err.stack.split('\n') : [];
  return [`${clock}${levelName} ${[first, ...details].join(' ')}`, ...more, ...trace];
}

interface LogEntry {
  readonly level?: number;
  readonly time?: unknown;
  readonly msg: unknown;
  readonly err?: { readonly stack?: unknown };
  readonly [field: string]: unknown;
}

/** pino's numbers. */
const levels: Readonly<Record<number, string>> = {
  10: 'trace',
  20: 'debug',
  30: 'info',
  40: 'warn',
  50: 'error',
  60: 'fatal',
};
