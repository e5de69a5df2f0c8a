import { readFile } from 'node:fs/promises';

/** Reads a JSON file without validating it. @throws the error of reading, or a SyntaxError. */
export async function readJson(path: string): Promise<unknown> {
  return JSON.parse(await readText(path));
}

/** Reads a text file without the byte order mark that some programs write first. @throws the error of reading. */
export async function readText(path: string): Promise<string> {
  return withoutMark(await readFile(path, 'utf8'));
}

/** The text without a byte order mark. */
export function withoutMark(text: string): string {
  return text.startsWith('\ufeff') ? text.slice(1) : text;
}
