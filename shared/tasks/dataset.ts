import { createHash } from 'node:crypto';
import { UserError } from '../base/errors.js';
import { createRandom } from '../base/random.js';

/** What every part of a run knows of a problem; the rest only its task does. */
export interface TaskProblem {
  /** Says the problem's content: the same in every run and process, another for another problem. */
  readonly id: string;
  /** The kind that it is of, such as `4 numbers`: evaluations tell kinds apart. */
  readonly difficulty: string;
}

/** Problems to train on and problems held out, the same in every process that loads the same data. */
export interface Dataset<Problem extends TaskProblem = TaskProblem> {
  /** Of all problems in order: two processes with equal digests hold the same data. */
  readonly digest: string;
  readonly train: readonly Problem[];
  readonly test: readonly Problem[];
  problem(id: string): Problem | undefined;
}

/** @param task part of the digest: no problem of one task is one of another. */
export function datasetOf<Problem extends TaskProblem>(
  task: string,
  test: readonly Problem[],
  train: readonly Problem[],
): Dataset<Problem> {
  const hash = createHash('sha256').update(`${task} ${test.length} ${train.length}\n`);
  const byId = new Map<string, Problem>();
  for (const problem of [...test, ...train]) {
    hash.update(`${problem.id}\n`);
    byId.set(problem.id, problem);
  }
  return { digest: hash.digest('hex'), test, train, problem: (id) => byId.get(id) };
}

/**
 * Test is the first `testSize` rows and train the rest, shuffled by the seed after that cut.
 *
 * Source: TuFT's Countdown guide, §1.
 *
 * @param source names the rows in a complaint.
 * @throws {UserError} if nothing remains to train on.
 */
export function splitRows<Problem extends TaskProblem>(
  task: string,
  rows: readonly Problem[],
  { source, testSize, seed }: { source: string; testSize: number; seed: number },
): Dataset<Problem> {
  if (rows.length <= testSize) {
    throw new UserError(
      `${source} has ${rows.length} problems, and ${testSize} are held out for tests: none ` +
        'remains to train on; lower the test size or give a larger file',
    );
  }
  const train = createRandom(seed).shuffle(rows.slice(testSize));
  return datasetOf(task, rows.slice(0, testSize), train);
}
