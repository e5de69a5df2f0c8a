import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { errorText, UserError } from '../errors.js';

/** A file of problems, one a row. */
export const TableSpec = z.strictObject({
  kind: z.literal('jsonl'),
  path: z.string().min(1),
  seed: z.int().nonnegative(), // of the order in which they are trained on
  testSize: z.int().positive(), // the first rows are held out
});
export type TableSpec = z.infer<typeof TableSpec>;

const maxComplaints = 5;

/**
 * The rows of a file, each as `problemOf` reads it.
 *
 * @param example a good row, to show next to bad ones.
 * @throws {UserError} naming the file, or each bad line of it.
 */
export async function readRows<Problem>(
  { path }: TableSpec,
  problemOf: (row: unknown) => Problem,
  example: object,
): Promise<Problem[]> {
  const problems: Problem[] = [];
  const complaints: string[] = [];
  let badLines = 0;
  for (const [index, line] of (await readText(path)).split('\n').entries()) {
    if (line.trim() === '') continue;
    try {
      problems.push(problemOf(JSON.parse(line)));
    } catch (caught) {
      if (++badLines > maxComplaints) continue;
      complaints.push(`  - line ${index + 1}: ${complaintOf(caught)}`);
    }
  }
  if (badLines > maxComplaints) complaints.push(`  - and ${badLines - maxComplaints} more`);
  if (complaints.length > 0) {
    throw new UserError(
      `${path} has ${badLines} bad ${badLines === 1 ? 'line' : 'lines'}; ` +
        `each must be like ${JSON.stringify(example)}:\n${complaints.join('\n')}`,
    );
  }
  return problems;
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    throw new UserError(
      `cannot read the problems in ${path} (${errorText(cause)}); give a file with one JSON object a line`,
      { cause },
    );
  }
}

function complaintOf(caught: unknown): string {
  if (!(caught instanceof z.ZodError)) return errorText(caught);
  return caught.issues
    .map(({ path, message }) => `${path.map(String).join('.') || 'the row'}: ${message}`)
    .join('; ');
}
