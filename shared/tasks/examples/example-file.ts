import { createHash } from 'node:crypto';
import { z } from 'zod';
import { plainWords } from '../../base/plain-words.js';
import { UserError } from '../../base/errors.js';
import { readRows } from '../data/table.js';
import type { ChatMessage } from '../prompt.js';
import { answerExample, chatExample, type Example, type ExampleTokenizer } from './example.js';

const text = z.string().min(1);

/** A line of a file of examples: a prompt and its answer as plain text, or a conversation. Other keys are ignored. */
const Row = z
  .object({
    prompt: text.optional(),
    answer: text.optional(),
    messages: z
      .array(z.object({ role: z.enum(['system', 'user', 'assistant']), content: text }))
      .optional(),
  })
  .check(({ value: { prompt, answer, messages }, issues }) => {
    const complain = (path: PropertyKey[], message: string) =>
      issues.push({ code: 'custom', input: messages, path, message });
    if (messages === undefined) {
      if (prompt === undefined) complain(['prompt'], 'it is missing, and so are messages');
      else if (answer === undefined) complain(['answer'], 'it is missing');
      return;
    }
    if (prompt !== undefined || answer !== undefined) {
      complain(['messages'], 'give either messages, or a prompt and its answer');
    }
    const unasked = messages.findIndex(
      ({ role }, i) => role === 'assistant' && messages[i - 1]?.role !== 'user',
    );
    if (messages.at(-1)?.role !== 'assistant') {
      complain(['messages'], 'the last message must be of the assistant: it is what is learned');
    } else if (unasked !== -1) {
      complain(['messages', unasked], 'the message before an answer must be of the user');
    }
  });

/** What the errors show as examples of a line. */
const exampleRow = { prompt: '3 7 21=84:', answer: '21*(7-3)' };
const exampleConversation = {
  messages: [
    { role: 'user', content: 'Make 84 of 3, 7 and 21.' },
    { role: 'assistant', content: '21*(7-3)' },
  ],
};

/** What turns the lines of a file into examples. */
export interface ExampleReading {
  readonly tokenizer: ExampleTokenizer & { readonly unknownTokenId: number | undefined };
  readonly stop: readonly string[]; // texts that end an answer
  readonly maxPositions: number; // tokens that the model can read
}

/** An example of a file. */
export interface FileExample {
  readonly example: Example;
  readonly asks: readonly string[]; // its prompt; or each message of the user, and all messages before the last answer as one text
}

/** Examples of a file, and a digest of their tokens in order. */
interface ReadExamples {
  readonly all: readonly FileExample[];
  readonly digest: string;
}

/**
 * Reads a file with one example as JSON in each line.
 *
 * @throws {UserError} if the file cannot be read, or naming its wrong lines: of another form, longer than the model
 *   can read, or with characters that it has no token for.
 */
export async function readExamples(path: string, reading: ExampleReading): Promise<ReadExamples> {
  if (!path.toLowerCase().endsWith('.jsonl')) {
    throw new UserError(
      `--data ${path} is neither solver nor a file that ends in .jsonl, with a line such as ${JSON.stringify(exampleRow)}`,
    );
  }
  const all = await readRows(
    { kind: 'jsonl', path, holds: 'examples' },
    (row) => exampleOf(Row.parse(row, { error: plainWords }), reading),
    exampleRow,
    exampleConversation,
  );
  if (all.length === 0) throw new UserError(`--data ${path} has no example`);
  const hash = createHash('sha256');
  for (const { example } of all) {
    const { tokens, isTrained } = example;
    hash.update(`${tokens.length}\n`).update(tokens).update(isTrained);
  }
  return { all, digest: hash.digest('hex') };
}

function exampleOf(
  { prompt, answer, messages }: z.infer<typeof Row>,
  reading: ExampleReading,
): FileExample {
  const { tokenizer, stop, maxPositions } = reading;
  const example =
    messages === undefined
      ? answerExample({ text: prompt! }, answer!, tokenizer, stop)
      : chatExample(messages, tokenizer);
  const { length } = example.tokens;
  if (length > maxPositions) {
    throw new Error(`it has ${length} tokens, and the model can read ${maxPositions}; shorten it`);
  }
  const { unknownTokenId } = tokenizer;
  if (unknownTokenId !== undefined && example.tokens.includes(unknownTokenId)) {
    throw new Error('the tokenizer of the model has no token for one of its characters');
  }
  if (messages === undefined) return { example, asks: [prompt!] };
  const byUser = messages.filter(({ role }) => role === 'user').map(({ content }) => content);
  return { example, asks: [...byUser, textOfMessages(messages.slice(0, -1))] };
}

/** Messages as one text, for comparison only: no chat template writes it. */
export function textOfMessages(messages: readonly ChatMessage[]): string {
  return messages.map(({ content }) => content.trim()).join('\n');
}
