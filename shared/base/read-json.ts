import { readFile } from 'node:fs/promises';

/** The value of a JSON file, unchecked. @throws the error of reading, or a SyntaxError. */
export async function readJson(path: string): Promise<unknown> {
  return JSON.parse(await readFile(path, 'utf8'));
}
