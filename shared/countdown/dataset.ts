import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { errorText, UserError } from '../errors.js';
import { createRandom } from '../random.js';
import type { DatasetSpec } from '../wire/run-config.js';
import { generateProblems } from './generator.js';
import { problemOf, type Problem } from './problem.js';

/** Problems to train on and problems held out, the same in every process that loads the same spec. */
export interface Dataset {
  /** Of all problems in order: two processes with equal digests hold the same data. */
  readonly digest: string;
  readonly train: readonly Problem[];
  readonly test: readonly Problem[];
  problem(id: string): Problem | undefined;
}

/**
 * Test is the first `testSize` problems and train the rest; the rows of a file are shuffled by the
 * seed after that cut, as in TuFT's guide. Generated problems come in random order already.
 *
 * @throws {UserError} naming the file, or each bad line of it, or what the generator cannot give.
 */
export async function loadDataset(spec: DatasetSpec): Promise<Dataset> {
  if (spec.kind === 'generator') {
    const problems = generateProblems(spec).map(({ problem }) => problem);
    return datasetOf(problems.slice(0, spec.testSize), problems.slice(spec.testSize));
  }
  const rows = await readRows(spec.path);
  if (rows.length <= spec.testSize) {
    throw new UserError(
      `${spec.path} has ${rows.length} problems, and ${spec.testSize} are held out for tests: none ` +
        'remains to train on; lower the test size or give a larger file',
    );
  }
  const train = createRandom(spec.seed).shuffle(rows.slice(spec.testSize));
  return datasetOf(rows.slice(0, spec.testSize), train);
}

function datasetOf(test: readonly Problem[], train: readonly Problem[]): Dataset {
  const hash = createHash('sha256').update(`countdown ${test.length} ${train.length}\n`);
  const byId = new Map<string, Problem>();
  for (const problem of [...test, ...train]) {
    hash.update(`${problem.id}\n`);
    byId.set(problem.id, problem);
  }
  return { digest: hash.digest('hex'), test, train, problem: (id) => byId.get(id) };
}

/** One line of a file; other keys beside these are left unread. */
const Row = z.object({
  nums: z.array(z.int().min(0).max(999_999_999)).min(2).max(16),
  target: z.int().min(-999_999_999).max(999_999_999),
});

const maxComplaints = 5;

async function readRows(path: string): Promise<Problem[]> {
  const problems: Problem[] = [];
  const complaints: string[] = [];
  let badLines = 0;
  for (const [index, line] of (await readText(path)).split('\n').entries()) {
    if (line.trim() === '') continue;
    const row = parseRow(line);
    if (typeof row !== 'string') problems.push(problemOf(row.nums, row.target));
    else if (++badLines <= maxComplaints) complaints.push(`  - line ${index + 1}: ${row}`);
  }
  if (badLines > maxComplaints) complaints.push(`  - and ${badLines - maxComplaints} more`);
  if (complaints.length > 0) {
    throw new UserError(
      `${path} has ${badLines} bad ${badLines === 1 ? 'line' : 'lines'}; ` +
        `each must be like {"nums": [3, 7, 21], "target": 84}:\n${complaints.join('\n')}`,
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

/** The row of a line, or what is wrong with it. */
function parseRow(line: string): z.output<typeof Row> | string {
  let json: unknown;
  try {
    json = JSON.parse(line);
  } catch (caught) {
    return errorText(caught);
  }
  const row = Row.safeParse(json);
  if (row.success) return row.data;
  return row.error.issues
    .map(({ path, message }) => `${path.map(String).join('.') || 'the row'}: ${message}`)
    .join('; ');
}
