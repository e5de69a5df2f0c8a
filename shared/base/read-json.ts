import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';

/** Reads a JSON file without validating it. @throws the error of reading, or a SyntaxError. */
export async function readJson(path: string): Promise<unknown> {
  return JSON.parse(withoutMark(await readFile(path, 'utf8')));
}

/** The text without the byte order mark that some programs write first. */
export function withoutMark(text: string): string {
  return text.startsWith('\ufeff') ? text.slice(1) : text;
}

/**
 * The lines of a text file, which may be larger than a string can be, without its byte order mark. Only `\n` ends a line:
 * other breaks may be in a JSON string. @throws the error of reading.
 */
export async function* readLines(path: string): AsyncGenerator<string> {
  let rest: string | undefined;
  const file = createReadStream(path, { encoding: 'utf8', highWaterMark: 2 ** 20 });
  for await (const piece of file as AsyncIterable<string>) {
    const lines = (rest === undefined ? withoutMark(piece) : rest + piece).split('\n');
    rest = lines.pop()!;
    yield* lines;
  }
  if (rest !== undefined) yield rest;
}
