import { execFile, type ExecFileException } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { deserialize } from 'node:v8';

const reader = fileURLToPath(new URL('./parquet-process.js', import.meta.url));
const maxBytes = 2 ** 31; // of all rows, as the reader hands them over

/** What the reader hands over. */
export type Outcome = { readonly rows: readonly Row[] } | { readonly error: string };
export type Row = Readonly<Record<string, unknown>>;

/**
 * The rows of a parquet file. They are read in a process of its own, because a broken file can end it:
 * one that claims more values than an array may have is fatal to V8.
 *
 * @throws {Error} if the file is none, is broken, or lacks a column.
 */
export async function parquetRows(path: string, columns: readonly string[]) {
  const { stdout } = await promisify(execFile)(process.execPath, [reader, path, ...columns], {
    encoding: 'buffer',
    maxBuffer: maxBytes,
  }).catch((cause: unknown) => {
    const { signal, code } = cause as ExecFileException;
    throw new Error(`the process that read it ended with ${signal ?? code}`, { cause });
  });
  const outcome = deserialize(stdout) as Outcome;
  if ('error' in outcome) throw new Error(outcome.error);
  return outcome.rows;
}
