import { open } from 'node:fs/promises';

const tailBytes = 64 * 1024;

/**
 * The last lines of a process's log, as readable text: our services write one JSON object per line, of which
 * the time, the message and the error are shown. A line that repeats the one before it is counted, not shown
 * again.
 *
 * @param from offset in bytes at which the process began to write; earlier lines are of other processes.
 * @returns at most `count` lines, oldest first; none when the log does not exist.
 */
export async function logTail(path: string, count: number, from = 0): Promise<string[]> {
  const blocks = withoutRepeats(withoutPlainCopies(await readBlocks(path, from)));
  return blocks.flatMap(({ lines }) => lines).slice(-count);
}

/**
 * Why a process ended, by its log: its last fatal message without the stack, or else its last line; empty if there is
 * none.
 */
export async function lastWords(path: string, from = 0): Promise<string> {
  const blocks = await readBlocks(path, from);
  const fatal = blocks.findLast(({ isFatal }) => isFatal);
  return fatal?.message ?? blocks.at(-1)?.lines.at(-1) ?? '';
}

/** What one line of a log says. */
interface Block {
  readonly lines: readonly string[]; // for people
  readonly message: string; // of a log entry alone: without time, fields and stack
  readonly isFatal: boolean;
}

async function readBlocks(path: string, from: number): Promise<Block[]> {
  try {
    await using file = await open(path);
    const { size } = await file.stat();
    const start = Math.max(0, from, size - tailBytes);
    const { buffer, bytesRead } = await file.read({
      buffer: Buffer.alloc(Math.max(0, size - start)),
      position: start,
    });
    const text = buffer.toString('utf8', 0, bytesRead);
    return text.split('\n').flatMap((line) => blockOf(line) ?? []);
  } catch {
    return [];
  }
}

/** A service writes its last error both as a log entry and as plain text on standard error. */
function withoutPlainCopies(blocks: readonly Block[]): Block[] {
  let copy: string[] = []; // the line that a copy would have next
  return blocks.filter(({ lines, message, isFatal }) => {
    if (lines.length === 1 && lines[0] === copy[0]) {
      copy.shift();
      return false;
    }
    copy = isFatal ? message.split('\n') : [];
    return true;
  });
}

function withoutRepeats(blocks: readonly Block[]): Block[] {
  const kept: { block: Block; times: number }[] = [];
  for (const block of blocks) {
    const last = kept.at(-1);
    if (last !== undefined && withoutClock(last.block) === withoutClock(block)) {
      kept[kept.length - 1] = { block, times: last.times + 1 };
    } else kept.push({ block, times: 1 });
  }
  return kept.map(({ block, times }) => {
    const [first = '', ...more] = block.lines;
    return times === 1 ? block : { ...block, lines: [`${first} (${times} times)`, ...more] };
  });
}

function withoutClock({ lines }: Block): string {
  return lines.join('\n').replace(/^\d\d:\d\d:\d\d /, '');
}

function blockOf(line: string): Block | undefined {
  if (line.trim() === '') return undefined;
  const plain = { lines: [line.trimEnd()], message: line.trimEnd(), isFatal: false };
  let entry: unknown;
  try {
    entry = JSON.parse(line);
  } catch {
    return plain;
  }
  if (typeof entry !== 'object' || entry === null || !('msg' in entry)) return plain;

  const { level, time, msg, err, service: _service, pid: _pid, ...fields } = entry as LogEntry;
  const levelName = levels[level ?? 30] ?? 'info';
  const clock = typeof time === 'string' ? `${time.slice(11, 19)} ` : '';
  const details = Object.entries(fields).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  const [first = '', ...more] = String(msg).split('\n');
  const trace = typeof err?.stack === 'string' ? err.stack.split('\n') : [];
  return {
    lines: [`${clock}${levelName} ${[first, ...details].join(' ')}`, ...more, ...trace],
    message: trace.length === 0 ? String(msg) : `${String(msg)}: ${trace[0]!}`,
    isFatal: levelName === 'fatal',
  };
}

interface LogEntry {
  readonly level?: number;
  readonly time?: unknown;
  readonly msg: unknown;
  readonly err?: { readonly stack?: unknown };
  readonly [field: string]: unknown;
}

/** Names of pino's levels. */
const levels: Readonly<Record<number, string>> = {
  10: 'trace',
  20: 'debug',
  30: 'info',
  40: 'warn',
  50: 'error',
  60: 'fatal',
};
