import { createHash } from 'node:crypto';
import { UserError } from '../base/errors.js';
import { createRandom } from '../base/random.js';

/** The task-independent part of a problem. */
export interface TaskProblem {
  /** Derived from the problem's content: the same in every run and process, unique per problem. */
  readonly id: string;
  /** The class under which evaluations report the problem, such as `4 numbers`. */
  readonly difficulty: string;
}

/** Training and held-out problems, the same in every process that loads the same data. */
export interface Dataset<Problem extends TaskProblem = TaskProblem> {
  /** Digest of all problems in order: processes with equal digests have the same data. */
  readonly digest: string;
  readonly train: readonly Problem[];
  readonly test: readonly Problem[];
  problem(id: string): Problem | undefined;
}

/** @param task part of the digest, so that datasets of different tasks differ. */
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
 * Splits rows: the first `testSize` are test, the rest are train, shuffled by the seed.
 *
 * Source: TuFT's Countdown guide, §1.
 *
 * @param source name of the data in error messages.
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
