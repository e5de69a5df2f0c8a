import { UserError } from '../../base/errors.js';
import { createRandom } from '../../base/random.js';
import type { Dataset, TaskProblem } from '../dataset.js';
import type { NoSolution, Task } from '../task.js';
import { promptText, type ChatMessage } from '../prompt.js';
import {
  readExamples,
  textOfMessages,
  type ExampleReading,
  type FileExample,
} from './example-file.js';
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
  readonly uncompared: number; // examples to train on that the task cannot read, so only their exact texts are compared
}

/**
 * The problems or examples that are left out of training, among those that are checked: all of a file, and the first
 * of the task's problems, because the solver takes 0.5 ms for one.
 */
export interface LeftOut {
  readonly among: string; // `the first 1024 problems`
  readonly checked: number;
  readonly problems: number; // left out; of a file its examples
  readonly byReason: ReadonlyMap<string, number>;
}

/** The value of `--data` for the solutions that a task knows of its own problems. */
export const solverData = 'solver';

export interface ExampleSource extends ExampleReading {
  readonly task: Pick<Task, 'prompt' | 'solution' | 'questionOf' | 'questionIn'>;
  readonly dataset: Dataset;
  readonly maxTokens: number; // of an answer that the policy samples
  readonly heldOut: number | undefined; // how many; undefined: usually 128
  readonly seed: number; // chooses the lines of a file that are held out
}

/**
 * Opens the examples that `--data` names: the solutions of the task's problems, with prompts as the policy will
 * see them, or the lines of a file. A problem without a solution that fits is left out: a run must not end because of
 * one row. So is a line that asks what a held-out problem asks: else the evaluation would measure what was trained on.
 *
 * @throws {UserError} if there are none, or a line of the file is wrong.
 */
export async function openExamples(data: string, source: ExampleSource): Promise<TrainingExamples> {
  if (data !== solverData) {
    const { all, digest } = await readExamples(data, source);
    const split = splitExamples(all, source);
    if (split.leftOut.problems === split.train.size) {
      throw new UserError(
        `--data ${data}: each of the ${split.train.size} examples to train on asks what a held-out problem asks; give others`,
      );
    }
    return { ...split, digest };
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
    uncompared: 0,
  };
}

const usuallyHeldOut = 128;

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
  const leftOut = { among: `the first ${checked} problems`, checked, problems, byReason };
  if (problems < checked) return leftOut;
  throw new UserError(
    `--data solver: there is no solution to learn from ${leftOutText(leftOut)!}; use other problems, raise --max-tokens, ` +
      'choose a shorter --prompt-style, or name a file of prompts and answers with --data',
  );
}

/** Such as `among the first 1024 problems: 3 without a solution`; undefined if none is left out. */
export function leftOutText({ among, problems, byReason }: LeftOut): string | undefined {
  if (problems === 0) return undefined;
  const counts = [...byReason].map(([reason, count]) => `${count} ${reason}`);
  return `among ${among}: ${counts.join('; ')}`;
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

/** Why an example of a file is left out. */
const asksHeldOut: NoSolution = { reason: 'with the question of a held-out problem' };

/**
 * Holds out lines chosen by the seed, since a file may be sorted. Those that only measure the loss may ask anything.
 *
 * @throws {UserError} if none remains to train on.
 */
function splitExamples(
  all: readonly FileExample[],
  source: ExampleSource,
): Omit<TrainingExamples, 'digest'> {
  const { heldOut, seed } = source;
  const count = heldOut ?? Math.min(usuallyHeldOut, Math.floor(all.length / 20));
  if (count >= all.length) {
    throw new UserError(
      `--held-out-examples ${count} leaves none of the ${all.length} examples to train on; choose fewer`,
    );
  }
  const shuffled = createRandom(`${seed} held-out examples`).shuffle(all);
  const compare = heldOutComparison(source);
  let uncompared = 0;
  const train = shuffled.slice(count).map(({ example, asks }) => {
    const found = compare(asks);
    if (found === undefined) uncompared++;
    return found === true ? asksHeldOut : example;
  });
  const { length: checked } = train;
  const problems = train.filter((made) => !isExample(made)).length;
  const byReason = new Map(problems > 0 ? [[asksHeldOut.reason, problems]] : []);
  return {
    heldOut: shuffled.slice(0, count).map(({ example }) => example),
    train: { size: checked, at: (index) => train[index]! },
    leftOut: { among: `the ${checked} examples`, checked, problems, byReason },
    uncompared,
  };
}

/**
 * Compares what a line of a file asks with the held-out problems: by its exact texts, and as the task reads them, so
 * with its numbers in another order too.
 *
 * @returns a function of the line's texts; undefined if none is equal and the task can read none.
 */
function heldOutComparison(source: ExampleSource) {
  const { task, dataset } = source;
  const questions = new Set(
    dataset.test.map((problem) => task.questionOf?.(problem) ?? problem.id),
  );
  const texts = heldOutTexts(source);
  return (asks: readonly string[]): boolean | undefined => {
    if (asks.some((text) => texts.has(text.trim()))) return true;
    const read = asks.map((text) => task.questionIn?.(text)).filter((each) => each !== undefined);
    return read.length === 0 ? undefined : read.some((question) => questions.has(question));
  };
}

/**
 * The texts that ask a held-out problem: its whole prompt and, of a chat, the message that asks. A message that all
 * prompts share asks nothing; if several others remain, each asks only a part.
 */
function heldOutTexts({ task, dataset, tokenizer }: ExampleSource): ReadonlySet<string> {
  const prompts = dataset.test.map((problem) => task.prompt(problem));
  const others = dataset.train.slice(0, 1).map((problem) => task.prompt(problem));
  const uses = new Map<string, number>(); // prompts by the messages that they have
  for (const prompt of [...prompts, ...others]) {
    const chat = 'chat' in prompt ? prompt.chat : [];
    for (const content of new Set(chat.map((message) => message.content))) {
      uses.set(content, (uses.get(content) ?? 0) + 1);
    }
  }
  const isOwn = ({ content }: ChatMessage) => uses.get(content)! < prompts.length + others.length;
  const texts = prompts.flatMap((prompt) => {
    const whole = promptText(prompt, tokenizer);
    if ('text' in prompt) return [whole];
    const own = prompt.chat.filter(isOwn);
    return [whole, textOfMessages(prompt.chat), ...(own.length === 1 ? [own[0]!.content] : [])];
  });
  return new Set(texts.map((text) => text.trim()));
}
