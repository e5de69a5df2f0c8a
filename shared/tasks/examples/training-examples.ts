import { UserError } from '../../base/errors.js';
import { createRandom } from '../../base/random.js';
import type { Dataset, TaskProblem } from '../dataset.js';
import type { NoSolution, Task } from '../task.js';
import { readExamples, type ExampleReading } from './example-file.js';
import { answerExample, trainedTokens, type Example } from './example.js';

/** Examples by their index; each is made when it is asked for. */
export interface Examples {
  readonly size: number;
  /** @returns the reason if the problem is left out. */
  at(index: number): Example | NoSolution;
}

/** Examples to train on, and others of the same kind to measure the loss on. */
export interface TrainingExamples {
  readonly train: Examples;
  readonly heldOut: readonly Example[];
  readonly digest: string; // of everything that they are made from
  readonly leftOut: LeftOut;
}

/** The problems that are left out of training, among the first. All are not checked: the solver takes 0.5 ms for one. */
export interface LeftOut {
  readonly checked: number;
  readonly problems: number; // left out
  readonly byReason: ReadonlyMap<string, number>;
}

/** The value of `--data` for the solutions that a task knows of its own problems. */
export const solverData = 'solver';

export interface ExampleSource extends ExampleReading {
  readonly task: Pick<Task, 'prompt' | 'solution'>;
  readonly dataset: Dataset;
  readonly maxTokens: number; // of an answer that the policy samples
  readonly heldOut: number | undefined; // how many; undefined: usually 128
  readonly seed: number; // chooses the lines of a file that are held out
}

/**
 * Opens the examples that `--data` names: the solutions of the task's problems, with prompts as the policy will
 * see them, or the lines of a file. A problem without a solution that fits is left out: a run must not end because of
 * one row.
 *
 * @throws {UserError} if there are none, or a line of the file is wrong.
 */
export async function openExamples(data: string, source: ExampleSource): Promise<TrainingExamples> {
  if (data !== solverData) {
    const { all, digest } = await readExamples(data, source);
    return { ...splitExamples(all, source), digest, leftOut: none };
  }
  const { dataset, heldOut = usuallyHeldOut } = source;
  const train = {
    size: dataset.train.length,
    at: (index: number) => solvedExample(dataset.train[index]!, source),
  };
  const measured = dataset.test.slice(0, heldOut).map((problem) => solvedExample(problem, source));
  return {
    train,
    heldOut: measured.filter((made) => isExample(made)),
    digest: dataset.digest,
    leftOut: leftOutOf(train),
  };
}

const usuallyHeldOut = 128;
const none: LeftOut = { checked: 0, problems: 0, byReason: new Map() };

export function isExample(made: Example | NoSolution): made is Example {
  return 'tokens' in made;
}

/** So many that a setting that leaves out a part of the problems is noticed, and few enough to take about a second. */
const checkedAtFirst = 1_024;

/** @throws {UserError} if all that are checked are left out. */
function leftOutOf(train: Examples): LeftOut {
  const checked = Math.min(train.size, checkedAtFirst);
  const byReason = new Map<string, number>();
  let problems = 0;
  for (let index = 0; index < checked; index++) {
    const made = train.at(index);
    if (isExample(made)) continue;
    problems++;
    byReason.set(made.reason, (byReason.get(made.reason) ?? 0) + 1);
  }
  const leftOut = { checked, problems, byReason };
  if (problems < checked) return leftOut;
  throw new UserError(
    `--data solver: there is no solution to learn from ${leftOutText(leftOut)!}; use other problems, raise --max-tokens, ` +
      'choose a shorter --prompt-style, or name a file of prompts and answers with --data',
  );
}

/** Such as `among the first 1024 problems: 3 without a solution`; undefined if none is left out. */
export function leftOutText({ checked, problems, byReason }: LeftOut): string | undefined {
  if (problems === 0) return undefined;
  const counts = [...byReason].map(([reason, count]) => `${count} ${reason}`);
  return `among the first ${checked} problems: ${counts.join('; ')}`;
}

function solvedExample(problem: TaskProblem, source: ExampleSource): Example | NoSolution {
  const { task, tokenizer, stop, maxTokens, maxPositions } = source;
  const solution = task.solution?.(problem) ?? { reason: 'of a task that knows no solutions' };
  if (typeof solution !== 'string') return solution;
  const example = answerExample(task.prompt(problem), solution, tokenizer, stop);
  if (trainedTokens(example) > maxTokens) {
    return { reason: `whose solution is longer than --max-tokens ${maxTokens}` };
  }
  if (example.tokens.length > maxPositions) {
    return { reason: `too long for the ${maxPositions} tokens that the model reads` };
  }
  return example;
}

/**
 * Holds out lines chosen by the seed, since a file may be sorted.
 *
 * @throws {UserError} if none remains to train on.
 */
function splitExamples(
  all: readonly Example[],
  { heldOut, seed }: Pick<ExampleSource, 'heldOut' | 'seed'>,
): Pick<TrainingExamples, 'train' | 'heldOut'> {
  const count = heldOut ?? Math.min(usuallyHeldOut, Math.floor(all.length / 20));
  if (count >= all.length) {
    throw new UserError(
      `--held-out-examples ${count} leaves none of the ${all.length} examples to train on; choose fewer`,
    );
  }
  const shuffled = createRandom(`${seed} held-out examples`).shuffle(all);
  const train = shuffled.slice(count);
  return {
    heldOut: shuffled.slice(0, count),
    train: { size: train.length, at: (index) => train[index]! },
  };
}
