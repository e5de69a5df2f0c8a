import { execFile, type ExecFileException } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { deserialize } from 'node:v8';
import { z } from 'zod';
import { errorText, UserError } from '../../base/errors.js';
import { assertUtf8, readLines } from '../../base/read-json.js';

/** The supported kinds of files, which are also their endings. */
const tableKinds = ['jsonl', 'csv', 'parquet'] as const;
export type TableKind = (typeof tableKinds)[number];

/** A file with one row for each thing that it holds. */
type Table = Pick<TableSpec, 'kind' | 'path'> & { readonly holds?: 'problems' | 'examples' };

/** A row of a file, which is parsed on demand and may be malformed. */
interface TableRow {
  readonly place: string; // `line 3`
  /** @throws if the row cannot be parsed. */
  readonly read: () => unknown;
}

type Example = Readonly<Record<string, unknown>>;

/**
 * The rows of a file in order.
 *
 * @param example a valid row: its keys are the columns to read; CSV cells are converted to the types of
 *   its values.
 * @throws {UserError} if the file cannot be read.
 */
async function readTable(
  { kind, path, holds = 'problems' }: Table,
  example: Example,
): Promise<Iterable<TableRow>> {
  try {
    return await readers[kind](path, example);
  } catch (cause) {
    throw new UserError(
      `cannot read the ${holds} in ${path} (${errorText(cause)}); give ${forms[kind]} ` +
        Object.keys(example).join(' and '),
      { cause },
    );
  }
}

const forms: Readonly<Record<TableKind, string>> = {
  jsonl: 'a file with one JSON object a line, with the keys',
  csv: 'a file of comma-separated values, whose first line names the columns',
  parquet: 'a parquet file with the columns',
};

const readers = { jsonl: jsonlRows, csv: csvRows, parquet: parquetTable };

async function jsonlRows(path: string): Promise<TableRow[]> {
  const rows: TableRow[] = [];
  let number = 0;
  for await (const line of readLines(path, { fatal: true })) {
    number++;
    if (line.trim() === '') continue;
    rows.push({ place: `line ${number}`, read: () => JSON.parse(line) as unknown });
  }
  return rows;
}

async function csvRows(path: string, example: Example): Promise<TableRow[]> {
  const { parse } = await import('csv-parse/sync'); // rarely needed
  const file = await readFile(path);
  if (!(file[0] === 0xff && file[1] === 0xfe)) assertUtf8(file); // else the mark of UTF-16, which the parser reads
  const rows = parse<{ record: Record<string, string>; info: { lines: number } }>(file, {
    columns: true,
    info: true,
    bom: true,
    skip_empty_lines: true,
    trim: true,
  });
  const [column = '', ...others] = Object.keys(rows[0]?.record ?? {});
  if (others.length === 0 && /[;\t]/.test(column)) {
    throw new Error(`its first line is ${JSON.stringify(column)}, without commas`);
  }
  return rows.map(({ record, info: { lines } }) => ({
    place: `line ${lines}`,
    read: () =>
      Object.fromEntries(
        Object.entries(record).map(([column, cell]) => [column, valueOf(cell, example[column])]),
      ),
  }));
}

/** The cell as a number or as numbers (`3 7 21`, `[3, 7, 21]`) if the example has them, else as text. */
function valueOf(cell: string, like: unknown): unknown {
  if (typeof like === 'number') return numberOf(cell);
  if (!Array.isArray(like)) return cell;
  const words = cell.replace(/^\[(.*)\]$/s, '$1').split(/[\s,;]+/);
  return words.filter((word) => word !== '').map(numberOf);
}

function numberOf(word: string): unknown {
  return /^-?\d+$/.test(word) ? Number(word) : word;
}

async function parquetTable(path: string, example: Example): Promise<Iterable<TableRow>> {
  const rows = await parquetRows(path, Object.keys(example));
  return rows.map((row, index) => ({
    place: `row ${index + 1}`,
    read: () =>
      Object.fromEntries(Object.entries(row).map(([column, value]) => [column, plain(value)])),
  }));
}

/** Converts 64-bit integers to numbers if a double represents them exactly. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'bigint') return value;
  return Number.isSafeInteger(Number(value)) ? Number(value) : value;
}

const reader = fileURLToPath(new URL('./parquet-process.js', import.meta.url));
const maxBytes = 2 ** 31; // of all rows, as serialized by the reader

/** The output of the reader process. */
export type Outcome = { readonly rows: readonly Row[] } | { readonly error: string };
type Row = Readonly<Record<string, unknown>>;

/**
 * The rows of a parquet file. They are read in a separate process, because a broken file can crash it: a
 * file that claims more values than an array may have is fatal to V8.
 *
 * @throws {Error} if the file is not parquet, is broken, or lacks a column.
 */
async function parquetRows(path: string, columns: readonly string[]) {
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

/** The split of the rows into train and test. */
export const split = {
  seed: z.int().nonnegative(), // of the training order
  testSize: z.int().positive(), // the first rows are held out
};

/** A file of problems, one per row. */
export const TableSpec = z.strictObject({
  kind: z.enum(tableKinds),
  path: z.string().min(1),
  ...split,
});
export type TableSpec = z.infer<typeof TableSpec>;

/**
 * The file that `--dataset` names; its ending determines the kind.
 *
 * @throws {UserError} listing the supported endings.
 */
export function tableSpec(
  path: string,
  how: Pick<TableSpec, 'seed' | 'testSize'>,
  flag = '--dataset',
): TableSpec {
  const kind = tableKind(path);
  if (kind !== undefined) return { kind, path, ...how };
  const others =
    flag === '--dataset'
      ? ', OWNER/NAME on the Hugging Face hub, or generator (for countdown)'
      : '';
  throw new UserError(
    `${flag} ${path} is of an unknown kind; name a file that ends in ` +
      tableKinds.map((kind) => `.${kind}`).join(' or ') +
      others,
  );
}

export function tableKind(path: string): TableKind | undefined {
  return tableKinds.find((kind) => path.toLowerCase().endsWith(`.${kind}`));
}

const maxComplaints = 5;

/**
 * The rows of a file, each converted by `problemOf`.
 *
 * @param example a valid row, whose keys and value types are read; it is shown next to bad rows.
 * @param otherExample a valid row of another form, to be shown too.
 * @throws {UserError} naming the file, or each bad row of it.
 */
export async function readRows<Problem>(
  table: Table,
  problemOf: (row: unknown) => Problem,
  example: Example,
  otherExample?: Example,
): Promise<Problem[]> {
  const problems: Problem[] = [];
  const complaints: string[] = [];
  let badRows = 0;
  for (const { place, read } of await readTable(table, example)) {
    let row: unknown;
    try {
      row = read();
      problems.push(problemOf(row));
    } catch (caught) {
      if (++badRows > maxComplaints) continue;
      complaints.push(`  - ${place}: ${complaintOf(caught, row)}`);
    }
  }
  if (badRows > maxComplaints) complaints.push(`  - and ${badRows - maxComplaints} more`);
  if (complaints.length > 0) {
    const examples = [example, otherExample].flatMap((row) => (row ? JSON.stringify(row) : []));
    throw new UserError(
      `${table.path} has ${badRows} bad ${badRows === 1 ? 'row' : 'rows'}; ` +
        `each must be like ${examples.join(' or ')}:\n${complaints.join('\n')}`,
    );
  }
  return problems;
}

function complaintOf(caught: unknown, row: unknown): string {
  if (!(caught instanceof z.ZodError)) return errorText(caught);
  return caught.issues
    .map(({ path, message }) => {
      const found = path.reduce<unknown>(
        (value, key) => (value as Record<PropertyKey, unknown> | undefined | null)?.[key],
        row,
      );
      const shown = ['string', 'number', 'boolean'].includes(typeof found)
        ? ` is ${JSON.stringify(found).slice(0, 60)}`
        : '';
      return `${path.map(String).join('.') || 'the row'}${shown}: ${message}`;
    })
    .join('; ');
}
