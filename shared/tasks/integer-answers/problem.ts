import { createHash } from 'node:crypto';
import { z } from 'zod';
import { plainWords } from '../../base/plain-words.js';
import { integersIn } from './integers.js';

/** A question in words, whose answer is an integer. */
export interface Problem {
  readonly id: string; // a digest of question and answer
  readonly difficulty: string; // how long the question is, in words
  readonly question: string;
  readonly answer: bigint;
}

/** @throws {z.ZodError} unless `row` is like `{"question": "…", "answer": 72}`; see below. */
export function problemOfRow(row: unknown): Problem {
  const { question, answer } = Row.parse(row, { error: plainWords });
  const id = createHash('sha256').update(`${question}\n${answer}`).digest('hex').slice(0, 20);
  return { id, difficulty: lengthOf(question), question, answer };
}

const maxAnswerChars = 1_000;

/** The answer may be a number, or a text that ends in it behind `####`, as in GSM8K. */
const Answer = z.union([z.int(), z.string()]).transform((answer, context) => {
  const text = String(answer);
  const mark = text.lastIndexOf('####');
  const ending = (mark === -1 ? text : text.slice(mark + 4)).trim();
  // Longer than any integer that is one: not searched, since a request may bring a megabyte of digits.
  const [only, ...others] = ending.length > maxAnswerChars ? [] : integersIn(ending);
  if (only?.text === ending && others.length === 0) return only.value;
  context.addIssue(
    `expected an integer, or a text that ends in "#### 72"; it ends in "${ending.slice(-40)}"`,
  );
  return z.NEVER;
});

const Row = z.object({ question: z.string().trim().min(1).max(20_000), answer: Answer });

/** Questions by how many words they have: the nearest thing to a difficulty that a text shows. */
function lengthOf(question: string): string {
  const words = question.split(/\s+/).length;
  const bound = [10, 30, 60].find((most) => words <= most);
  return bound === undefined ? 'more than 60 words' : `up to ${bound} words`;
}
