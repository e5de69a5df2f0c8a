import { z } from 'zod';
import { sha256 } from '../../base/bytes.js';
import { isMissing, plainWords } from '../../base/plain-words.js';
import { number } from '../../service/config-fields.js';
import { DataSpec, dataOf, checkData, readData, sourceOf } from '../data/data.js';
import { splitRows } from '../dataset.js';
import {
  namesOnly,
  PromptTemplate,
  chooseTemplate,
  fillTemplate,
  answerFormOf,
  templateReader,
} from '../prompt-template.js';
import { type CommonSettings, defineTask, type Task } from '../task.js';
import { integersIn, scoreAnswer } from './score.js';
import { styles } from './prompts.js';

/** A question in words with an integer answer. */
export interface Problem {
  readonly id: string; // a digest of question and answer
  readonly difficulty: string; // length of the question in words
  readonly question: string;
  readonly answer: bigint;
}

/** @throws {z.ZodError} unless `row` is like `{"question": "…", "answer": 72}`; see below. */
export function problemOfRow(row: unknown): Problem {
  const { question, answer } = Row.parse(row, { error: plainWords });
  const id = sha256(`${question}\n${answer}`).slice(0, 20);
  return { id, difficulty: lengthOf(question), question, answer };
}

const maxAnswerChars = 1_000;

/** The answer may be a number, or a text that ends in `#### ` and the number, as in GSM8K. */
const Answer = z
  .union([z.int(), z.string()], {
    error: ({ input }) => (input === undefined ? isMissing : 'expected an integer'),
  })
  .transform((answer, context) => {
    const text = String(answer);
    const mark = text.lastIndexOf('####');
    const ending = (mark === -1 ? text : text.slice(mark + 4)).trim();
    // Longer than any valid integer; only this much is searched, because a request may contain a megabyte of digits.
    const [only, ...others] = ending.length > maxAnswerChars ? [] : integersIn(ending);
    if (only?.text === ending && others.length === 0) return only.value;
    context.addIssue(
      `expected an integer, or a text that ends in "#### 72"; it ends in "${ending.slice(-40)}"`,
    );
    return z.NEVER;
  });

const Row = z.object({ question: z.string().trim().min(1).max(20_000), answer: Answer });

/** The difficulty of a question, approximated by its number of words. */
function lengthOf(question: string): string {
  const words = question.split(/\s+/).length;
  const bound = [10, 30, 60].find((most) => words <= most);
  return bound === undefined ? 'more than 60 words' : `up to ${bound} words`;
}

/** Capitals and the length of blanks make no other question. */
function questionOf({ question }: Pick<Problem, 'question'>): string {
  return question.toLowerCase().replace(/\s+/g, ' ');
}

export const IntegerAnswersPrompt = PromptTemplate.check(namesOnly(['question']));

/** The configuration of integer answers in a run. */
export const IntegerAnswersSpec = z.strictObject({
  name: z.literal('integer-answers'),
  dataset: DataSpec,
  prompt: IntegerAnswersPrompt,
  reward: z.strictObject({
    formatPenalty: z.number().min(0).max(1), // penalty of an answer in the wrong form
  }),
});
export type IntegerAnswersSpec = z.infer<typeof IntegerAnswersSpec>;

/** The learner's settings for integer answers only. */
const integerAnswersSettings = {
  formatPenalty: number
    .min(0)
    .max(1)
    .optional()
    .describe('penalty of an answer in the wrong form; default 0.1. For integer-answers.'),
};

type Settings = CommonSettings & z.infer<z.ZodObject<typeof integerAnswersSettings>>;

/** @throws {UserError} if the data or the prompt style does not exist. */
async function integerAnswersSpec(settings: Settings): Promise<IntegerAnswersSpec> {
  const { promptStyle, promptLanguage } = settings;
  return {
    name: 'integer-answers',
    dataset: await dataOf(settings),
    prompt: await chooseTemplate(IntegerAnswersPrompt, styles, promptStyle, promptLanguage),
    reward: { formatPenalty: settings.formatPenalty ?? 0.1 },
  };
}

/** Questions in words whose answers are integers, such as GSM8K's. */
export const integerAnswers = defineTask({
  name: 'integer-answers',
  settings: integerAnswersSettings,
  spec: IntegerAnswersSpec,
  check: (settings, complain) => {
    checkData('integer-answers', settings, complain);
  },
  configure: integerAnswersSpec,
  open: openIntegerAnswers,
});

function openIntegerAnswers(spec: IntegerAnswersSpec): Task<Problem> {
  const { name, dataset, prompt, reward } = spec;
  const form = answerFormOf(prompt);
  const read = templateReader(prompt, { question: '[^]+?' });
  return {
    async load() {
      const rows = await readData(dataset, problemOfRow, {
        question: 'How much is …?',
        answer: 72,
      });
      return splitRows(name, rows, {
        ...dataset,
        source: sourceOf(dataset),
        questionOf,
      });
    },
    questionOf,
    questionIn(text) {
      const question = read(text)?.['question'];
      return question === undefined ? undefined : questionOf({ question });
    },
    prompt: ({ question }) => fillTemplate(prompt, { question }),
    stop: prompt.stop,
    score: (problem, completion) => scoreAnswer(form, problem, completion, reward),
    problemOf: problemOfRow,
  };
}
