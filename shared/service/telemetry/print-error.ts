import { withoutSecrets } from './secrets.js';

const widest = 120; // columns: longer lines are hard to read

/** Writes a line for the user to standard error, wrapped between words on a terminal. */
export function printError(line: string): void {
  const { isTTY, columns } = process.stderr;
  const text = withoutSecrets(line);
  // A log or a pipe gets the unwrapped line, which is easier to search.
  const shown = isTTY ? wrapped(text, Math.min(widest, columns || 80)) : text;
  process.stderr.write(`${shown}\n`);
}

/**
 * Wraps each line that is wider than `columns`: preferably after a clause if the line is then at least half
 * full, and never inside backticks, so that a command can be copied.
 */
export function wrapped(text: string, columns: number): string {
  return text
    .split('\n')
    .map((line) => wrappedLine(line, columns))
    .join('\n');
}

function wrappedLine(line: string, columns: number): string {
  if (line.length <= columns) return line;
  const start = /^\s*(?:- )?/.exec(line)![0].length;
  const breaks = breaksOf(line).filter((at) => at > start);
  const fitting = breaks.filter((at) => at <= columns);
  const clauses = fitting.filter((at) => at >= columns / 2 && /[;:.]/.test(line[at - 1]!));
  const at = clauses.at(-1) ?? fitting.at(-1) ?? breaks[0];
  if (at === undefined) return line;
  const indent = line.startsWith(' ') ? ' '.repeat(start) : '  ';
  return `${line.slice(0, at)}\n${wrappedLine(indent + line.slice(at + 1), columns)}`;
}

/** Returns the positions of blanks outside backticks. */
function breaksOf(line: string): number[] {
  let isQuoted = false;
  return Array.from({ length: line.length }, (_, at) => at).filter((at) => {
    if (line[at] === '`') isQuoted = !isQuoted;
    return line[at] === ' ' && !isQuoted;
  });
}
