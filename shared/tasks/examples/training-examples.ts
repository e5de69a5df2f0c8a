import { UserError } from '../../base/errors.js';
import { createRandom } from '../../base/random.js';
import type { Dataset, TaskProblem } from '../dataset.js';
import type { Task } from '../task.js';
import { readExamples, type ExampleReading } from './example-file.js';
import { answerExample, trainedTokens, type Example } from './example.js';

/** Examples by their index; each is made when it is asked for. */
export interface Examples {
  readonly size: number;
  /** @throws {UserError} if the example cannot be made. */
  at(index: number): Example;
}

/** Examples to train on, and others of the same kind to measure the loss on. */
export interface TrainingExamples {
  readonly train: Examples;
  readonly heldOut: Examples;
  readonly digest: string; // of everything that they are made from
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
 * see them, or the lines of a file.
 *
 * @throws {UserError} if there are none, or a line of the file is wrong.
 */
export async function openExamples(data: string, source: ExampleSource): Promise<TrainingExamples> {
  if (data !== solverData) {
    const { all, digest } = await readExamples(data, source);
    return { ...splitExamples(all, source), digest };
  }
  const { dataset, heldOut = usuallyHeldOut } = source;
  const examples = (problems: readonly TaskProblem[]): Examples => ({
    size: problems.length,
    at: (index) => solvedExample(problems[index]!, source),
  });
  const known = { train: examples(dataset.train), digest: dataset.digest };
  known.train.at(0);
  return { ...known, heldOut: examples(dataset.test.slice(0, heldOut)) };
}

const usuallyHeldOut = 128;

function solvedExample(problem: TaskProblem, source: ExampleSource): Example {
  const { task, tokenizer, stop, maxTokens, maxPositions } = source;
  const solution = task.solution?.(problem);
  if (solution === undefined) {
    throw new UserError(
      `--data solver: the task knows no solution of ${problem.id}; it knows those of --task countdown with up to ` +
        '4 numbers. Leave the problem out, or name a file of prompts and answers with --data',
    );
  }
  const prompt = task.prompt(problem);
  const example = answerExample(prompt, solution, tokenizer, stop);
  const answer = trainedTokens(example);
  if (answer > maxTokens) {
    throw new UserError(
      `the solution of ${problem.id} has ${answer} tokens, and --max-tokens allows an answer of ${maxTokens}; raise it`,
    );
  }
  const { length } = example.tokens;
  if (length > maxPositions) {
    throw new UserError(
      `${problem.id} and its solution have ${length} tokens, and the model can read ${maxPositions}; ` +
        'choose a shorter --prompt-style or another model (--model-dir)',
    );
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
  const examples = (some: readonly Example[]): Examples => ({
    size: some.length,
    at: (index) => some[index]!,
  });
  return { heldOut: examples(shuffled.slice(0, count)), train: examples(shuffled.slice(count)) };
}
