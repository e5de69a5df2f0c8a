import { readFile } from 'node:fs/promises';

/** Reads a JSON file without validating it. @throws the error of reading, or a SyntaxError. */
export async function readJson(path: string): Promise<unknown> {
  return JSON.parse(await readFile(path, 'utf8'));
}
