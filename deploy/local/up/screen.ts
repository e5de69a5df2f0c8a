import type { Writable } from 'node:stream';

/** Where a person looks during a run: lines that stay, and on a terminal one that is rewritten. */
export interface Screen {
  /** A line that stays. */
  readonly note: (text: string) => void;
  /** A line that stays and wants attention. */
  readonly warn: (text: string) => void;
  /** What is going on now: rewritten on a terminal, else a line of its own now and then. */
  readonly status: (text: string) => void;
}

export interface ScreenOptions {
  readonly stream: Pick<Writable, 'write'> & {
    readonly isTTY?: boolean;
    readonly columns?: number;
  };
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly now: () => number; // ms
}

/** Without a terminal, lines of status are at least this far apart. */
export const plainStatusEveryMs = 10_000;

/** Honours NO_COLOR (no-color.org), TERM=dumb, and the absence of a terminal. */
export function createScreen({ stream, env, now }: ScreenOptions): Screen {
  const isTerminal = stream.isTTY === true && env['TERM'] !== 'dumb';
  const hasColor = isTerminal && (env['NO_COLOR'] ?? '') === '';
  const color = (code: number, text: string) => (hasColor ? `\x1b[${code}m${text}\x1b[0m` : text);
  let shown = '';
  let shownAt = -Infinity;

  const line = (text: string) => {
    stream.write(isTerminal && shown !== '' ? `\r\x1b[2K${text}\n${shown}` : `${text}\n`);
  };
  return {
    note: line,
    warn: (text) => {
      line(color(33, text));
    },
    status: (text) => {
      if (isTerminal) {
        const fitting = text.slice(0, Math.max(0, (stream.columns || 80) - 1));
        shown = fitting === '' ? '' : color(36, fitting);
        stream.write(`\r\x1b[2K${shown}`);
      } else if (text !== '' && now() - shownAt >= plainStatusEveryMs) {
        shownAt = now();
        stream.write(`${text}\n`);
      }
    },
  };
}
