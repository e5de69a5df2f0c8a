import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { TextDecoder } from 'node:util';

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
 * other breaks may be in a JSON string.
 *
 * @param options.fatal refuses bytes that are not UTF-8; else they become replacement characters, as in a line that was cut off.
 * @throws the error of reading.
 */
export async function* readLines(path: string, { fatal = false } = {}): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal }); // drops the mark
  let rest: string | undefined;
  const file = createReadStream(path, { highWaterMark: 2 ** 20 });
  for await (const bytes of file as AsyncIterable<Uint8Array>) {
    const piece = decodedBy(decoder, bytes);
    const lines = (rest === undefined ? piece : rest + piece).split('\n');
    rest = lines.pop()!;
    yield* lines;
  }
  const last = decodedBy(decoder);
  if (rest !== undefined) yield rest + last;
}

/** @throws {Error} if the bytes are not UTF-8. They may be more than a string can hold. */
export function assertUtf8(bytes: Uint8Array): void {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  for (let at = 0; at < bytes.byteLength; at += 2 ** 20) {
    decodedBy(decoder, bytes.subarray(at, at + 2 ** 20));
  }
  decodedBy(decoder);
}

/** @param bytes the next ones; without them, the end of the text. */
function decodedBy(decoder: TextDecoder, bytes?: Uint8Array): string {
  try {
    return bytes === undefined ? decoder.decode() : decoder.decode(bytes, { stream: true });
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ERR_ENCODING_INVALID_ENCODED_DATA') throw cause;
    throw new Error('it is not UTF-8 text; save it as UTF-8', { cause });
  }
}
