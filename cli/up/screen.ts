import type { Writable } from 'node:stream';
import type { Environment } from '../../shared/service/config.js';

/** The output of a run: permanent lines, and on a terminal a status line that is rewritten. */
export interface Screen {
  /** A line that stays. */
  readonly note: (text: string) => void;
  /** A line that stays and wants attention. */
  readonly warn: (text: string) => void;
  /** The current state: one rewritten line on a terminal, else a new line from time to time. */
  readonly status: (text: string) => void;
  /** How wide a status may be now; endless without a terminal. */
  readonly columns: () => number;
}

interface ScreenOptions {
  readonly stream: Pick<Writable, 'write'> & {
    readonly isTTY?: boolean;
    readonly columns?: number;
  };
  readonly env: Environment;
  readonly now: () => number; // ms
}

/** Without a terminal, lines of status are at least this far apart. */
export const plainStatusEveryMs = 10_000;

/** Honours NO_COLOR (no-color.org), TERM=dumb, and the absence of a terminal. */
export function createScreen({ stream, env, now }: ScreenOptions): Screen {
  const isTerminal = stream.isTTY === true && env['TERM'] !== 'dumb';
  const hasColor = isTerminal && (env['NO_COLOR'] ?? '') === '';
  const color = (code: number, text: string) => (hasColor ? `\x1b[${code}m${text}\x1b[0m` : text);
  const columns = () => (isTerminal ? stream.columns || 80 : Infinity);
  // The last column stays free: some terminals wrap a line that fills it.
  const fitted = (text: string) => text.slice(0, Math.max(0, columns() - 1));
  const styled = (text: string) => (text === '' ? '' : color(36, text));
  let shown = '';
  let shownAt = -Infinity;

  const line = (text: string) => {
    stream.write(
      isTerminal && shown !== '' ? `\r\x1b[2K${text}\n${styled(fitted(shown))}` : `${text}\n`,
    );
  };
  return {
    columns,
    note: line,
    warn: (text) => {
      line(color(33, text));
    },
    status: (text) => {
      if (isTerminal) {
        shown = text;
        stream.write(`\r\x1b[2K${styled(fitted(text))}`);
      } else if (text !== '' && now() - shownAt >= plainStatusEveryMs) {
        shownAt = now();
        stream.write(`${text}\n`);
      }
    },
  };
}
