import { readFile } from 'node:fs/promises';
import { parse } from 'csv-parse/sync';
import { errorText, UserError } from '../../base/errors.js';
import { parquetRows } from './parquet.js';

/** The kinds of files that problems come in, which are their endings too. */
export const tableKinds = ['jsonl', 'csv', 'parquet'] as const;
export type TableKind = (typeof tableKinds)[number];

/** A row that may still be found to be none. */
export interface TableRow {
  readonly place: string; // `line 3`
  /** @throws if it cannot be read. */
  readonly read: () => unknown;
}

type Example = Readonly<Record<string, unknown>>;

/**
 * The rows of a file in order.
 *
 * @param example a good row: its keys are the columns that are wanted, and in a CSV, where all is
 *   text, a cell is read as the kind of value that stands there.
 * @throws {UserError} if the file cannot be read.
 */
export async function readTable(
  kind: TableKind,
  path: string,
  example: Example,
): Promise<Iterable<TableRow>> {
  try {
    return await readers[kind](path, example);
  } catch (cause) {
    throw new UserError(
      `cannot read the problems in ${path} (${errorText(cause)}); give ${forms[kind]} ` +
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
  const lines = (await readFile(path, 'utf8')).split('\n');
  return lines.flatMap((line, index) =>
    line.trim() === ''
      ? []
      : { place: `line ${index + 1}`, read: () => JSON.parse(line) as unknown },
  );
}

async function csvRows(path: string, example: Example): Promise<TableRow[]> {
  const file = await readFile(path);
  const rows = parse<{ record: Record<string, string>; info: { lines: number } }>(file, {
    ...{ columns: true, info: true, bom: true, skip_empty_lines: true, trim: true },
  });
  return rows.map(({ record, info: { lines } }) => ({
    place: `line ${lines}`,
    read: () =>
      Object.fromEntries(
        Object.entries(record).map(([column, cell]) => [column, valueOf(cell, example[column])]),
      ),
  }));
}

/** A number, or numbers such as `3 7 21` and `[3, 7, 21]`, where the example has such; else the text. */
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

/** 64-bit integers as numbers, where a double holds them exactly. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'bigint') return value;
  return Number.isSafeInteger(Number(value)) ? Number(value) : value;
}
