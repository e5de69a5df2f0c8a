import { createHash } from 'node:crypto';
import { UserError } from '../base/errors.js';
import { createRandom } from '../base/random.js';

/** The task-independent part of a problem. */
export interface TaskProblem {
  /** Derived from the problem's content: the same in every run and process, unique per problem. */
  readonly id: string;
  /** The class under which evaluations report the problem, such as `4 numbers`. */
  readonly difficulty: string;
  /** Whether training only rehearses it: its kind is known to the model already. Absent unless the data has both kinds. */
  readonly isRehearsed?: boolean;
}

/** Training and held-out problems, the same in every process that loads the same data. */
export interface Dataset<Problem extends TaskProblem = TaskProblem> {
  /** Digest of all problems in order: processes with equal digests have the same data. */
  readonly digest: string;
  readonly train: readonly Problem[];
  readonly test: readonly Problem[];
  /** Rows that were left out of `train` because a held-out problem is the same question. */
  readonly leakedRows: number;
  problem(id: string): Problem | undefined;
}

/** @param task part of the digest, so that datasets of different tasks differ. */
export function datasetOf<Problem extends TaskProblem>(
  task: string,
  test: readonly Problem[],
  train: readonly Problem[],
  leakedRows = 0,
): Dataset<Problem> {
  const hash = createHash('sha256').update(`${task} ${test.length} ${train.length}\n`);
  const byId = new Map<string, Problem>();
  for (const problem of [...test, ...train]) {
    hash.update(`${problem.id}\n`);
    byId.set(problem.id, problem);
  }
  const digest = hash.digest('hex');
  return { digest, test, train, leakedRows, problem: (id) => byId.get(id) };
}

/** How rows are split, and how they are named in an error. */
interface SplitOptions<Problem> {
  readonly source: string;
  readonly testSize: number;
  readonly seed: number;
  /** Equal for two problems that are the same question; by default their ids. */
  readonly questionOf?: (problem: Problem) => string;
}

/**
 * Test is the first `testSize` rows and train the rest, shuffled by the seed after that cut. A row that
 * asks the same question as a held-out one is left out of train: else the evaluation would measure what
 * was trained on.
 *
 * Source: TuFT's Countdown guide, §1; leaving out leaked rows is ours.
 *
 * @throws {UserError} if nothing remains to train on.
 */
export function splitRows<Problem extends TaskProblem>(
  task: string,
  rows: readonly Problem[],
  { source, testSize, seed, questionOf = ({ id }) => id }: SplitOptions<Problem>,
): Dataset<Problem> {
  const test = rows.slice(0, testSize);
  const heldOut = new Set(test.map(questionOf));
  const others = rows.slice(testSize);
  const train = others.filter((problem) => !heldOut.has(questionOf(problem)));
  const leakedRows = others.length - train.length;
  if (train.length === 0) {
    const leaked =
      leakedRows === 0
        ? ''
        : leakedRows === 1
          ? ', and the other one asks what one of those asks'
          : `, and the other ${leakedRows} ask what those ask`;
    throw new UserError(
      `${source} has ${counted(rows.length)}, and --test-size holds out ${testSize} for tests${leaked}: none ` +
        `remains to train on; ${testSize > 1 ? 'lower --test-size, or ' : ''}give a larger file`,
    );
  }
  return datasetOf(task, test, createRandom(seed).shuffle(train), leakedRows);
}

function counted(problems: number): string {
  return problems === 1 ? '1 problem' : `${problems} problems`;
}
