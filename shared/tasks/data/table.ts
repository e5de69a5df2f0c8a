import { z } from 'zod';
import { errorText, UserError } from '../../base/errors.js';
import { readTable, tableKinds, type TableKind } from './table-files.js';

/** How the rows of some data are parted. */
export const split = {
  seed: z.int().nonnegative(), // of the order in which they are trained on
  testSize: z.int().positive(), // the first rows are held out
};

/** A file of problems, one a row. */
export const TableSpec = z.strictObject({
  kind: z.enum(tableKinds),
  path: z.string().min(1),
  ...split,
});
export type TableSpec = z.infer<typeof TableSpec>;

/**
 * The file that `--dataset` names; its ending tells how it is read.
 *
 * @throws {UserError} naming the endings that there are.
 */
export function tableSpec(
  path: string,
  how: Pick<TableSpec, 'seed' | 'testSize'>,
  flag = '--dataset',
): TableSpec {
  const kind = tableKind(path);
  if (kind !== undefined) return { kind, path, ...how };
  throw new UserError(
    `${flag} ${path} is no kind of file that is known; name one that ends in ` +
      tableKinds.map((kind) => `.${kind}`).join(' or '),
  );
}

export function tableKind(path: string): TableKind | undefined {
  return tableKinds.find((kind) => path.toLowerCase().endsWith(`.${kind}`));
}

const maxComplaints = 5;

/**
 * The rows of a file, each as `problemOf` reads it.
 *
 * @param example a good row: what it has, is read, as what it has it for; it is shown next to bad ones.
 * @throws {UserError} naming the file, or each bad row of it.
 */
export async function readRows<Problem>(
  { kind, path }: Pick<TableSpec, 'kind' | 'path'>,
  problemOf: (row: unknown) => Problem,
  example: Readonly<Record<string, unknown>>,
): Promise<Problem[]> {
  const problems: Problem[] = [];
  const complaints: string[] = [];
  let badRows = 0;
  for (const { place, read } of await readTable(kind, path, example)) {
    try {
      problems.push(problemOf(read()));
    } catch (caught) {
      if (++badRows > maxComplaints) continue;
      complaints.push(`  - ${place}: ${complaintOf(caught)}`);
    }
  }
  if (badRows > maxComplaints) complaints.push(`  - and ${badRows - maxComplaints} more`);
  if (complaints.length > 0) {
    throw new UserError(
      `${path} has ${badRows} bad ${badRows === 1 ? 'row' : 'rows'}; ` +
        `each must be like ${JSON.stringify(example)}:\n${complaints.join('\n')}`,
    );
  }
  return problems;
}

function complaintOf(caught: unknown): string {
  if (!(caught instanceof z.ZodError)) return errorText(caught);
  return caught.issues
    .map(({ path, message }) => `${path.map(String).join('.') || 'the row'}: ${message}`)
    .join('; ');
}
