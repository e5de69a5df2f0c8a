/** Reads the parquet file named by the first argument and writes the columns named by the others to stdout. */
import { readFile } from 'node:fs/promises';
import { serialize } from 'node:v8';
import { parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { errorText } from '../../base/errors.js';
import type { Outcome } from './table.js';

const [path, ...columns] = process.argv.slice(2) as [string, ...string[]];

async function read(): Promise<Outcome> {
  try {
    const file = new Uint8Array(await readFile(path)).buffer;
    return { rows: await parquetReadObjects({ file, compressors, columns }) };
  } catch (caught) {
    return { error: errorText(caught) };
  }
}

// Another column may fail after the library has already rejected; that failure needs no report.
process.on('unhandledRejection', () => undefined);
process.stdout.write(serialize(await read()));
