import { type ChatMessage, promptTokens, type Prompt, type PromptTokenizer } from '../prompt.js';

/** A text to learn from, in tokens. */
export interface Example {
  readonly tokens: Int32Array; // [N]
  readonly isTrained: Uint8Array; // [N] 1 for the tokens that the model is to write, 0 for those that it reads
}

/** The part of a tokenizer that an example needs; `Tokenizer` of shared/model is one. */
export interface ExampleTokenizer extends PromptTokenizer {
  /** @param opensAnswer false: the chat as it stands, without the start of another answer. */
  chatText(messages: readonly ChatMessage[], opensAnswer?: boolean): string;
  readonly eosTokenIds: readonly number[];
}

/** Number of tokens that the model is to write. */
export function trainedTokens({ isTrained }: Example): number {
  return isTrained.reduce((sum, each) => sum + each, 0);
}

/**
 * The example of an answer to a prompt. Prompt and answer are encoded separately, as they are when the policy
 * samples. The answer ends as a sampled one does: with the end of the sequence, or with a text that ends sampling.
 *
 * @param stop texts that end an answer.
 */
export function answerExample(
  prompt: Prompt,
  answer: string,
  tokenizer: ExampleTokenizer,
  stop: readonly string[],
): Example {
  const isStopped = stop.some((text) => answer.endsWith(text));
  const end = isStopped ? [] : endOf(prompt, tokenizer);
  return joined([
    { tokens: promptTokens(prompt, tokenizer), isTrained: false },
    { tokens: Int32Array.of(...tokenizer.encode(answer), ...end), isTrained: true },
  ]);
}

/** The token that ends an answer: of several, the one that the chat template writes after an answer. */
function endOf(prompt: Prompt, tokenizer: ExampleTokenizer): number[] {
  const { eosTokenIds } = tokenizer;
  const [first] = eosTokenIds;
  if (first === undefined) return [];
  if (eosTokenIds.length === 1 || 'text' in prompt) return [first];
  const before = tokenizer.chatText(prompt.chat);
  const after = tokenizer.chatText([...prompt.chat, { role: 'assistant', content: '1' }], false);
  const answer = after.startsWith(before) ? tokenizer.encode(after.slice(before.length)) : [];
  return [answer.find((token) => eosTokenIds.includes(token)) ?? first];
}

/**
 * The example of a conversation, in the form of the model's chat template: each answer of the assistant is trained
 * up to the end of its sequence. Where the template rewrites earlier answers once the conversation goes on, as Qwen3's
 * does, they are only read, as it then writes them.
 *
 * @param messages the last of them is the assistant's, and another's is before each of the assistant's.
 * @throws {Error} if the template opens an answer with words that a finished answer does not have.
 */
export function chatExample(
  messages: readonly ChatMessage[],
  tokenizer: ExampleTokenizer,
): Example {
  let parts: Part[] = [];
  let soFar = '';
  for (const [i, { role }] of messages.entries()) {
    if (role !== 'assistant') continue;
    const before = tokenizer.chatText(messages.slice(0, i));
    const after = tokenizer.chatText(messages.slice(0, i + 1), false);
    if (!after.startsWith(before)) {
      throw new Error(
        `messages.${i}: the chat template of the model opens an answer with words that a finished answer does not ` +
          'have, so what the model would be trained on is not what it samples; give the line as prompt and answer',
      );
    }
    if (!before.startsWith(soFar)) {
      parts = [];
      soFar = '';
    }
    const answer = tokenizer.encode(after.slice(before.length));
    const end = answer.findIndex((token) => tokenizer.eosTokenIds.includes(token));
    const length = end === -1 ? answer.length : end + 1;
    parts.push(
      { tokens: tokenizer.encode(before.slice(soFar.length)), isTrained: false },
      { tokens: answer.subarray(0, length), isTrained: true },
      { tokens: answer.subarray(length), isTrained: false }, // such as the line break after the end
    );
    soFar = after;
  }
  const last = parts.at(-2);
  const isEnded = last === undefined || tokenizer.eosTokenIds.includes(last.tokens.at(-1) ?? -1);
  const ending = { tokens: Int32Array.from(tokenizer.eosTokenIds.slice(0, 1)), isTrained: true };
  return joined([...parts.slice(0, -1), ...(isEnded ? [] : [ending])]);
}

interface Part {
  readonly tokens: Int32Array;
  readonly isTrained: boolean;
}

function joined(parts: readonly Part[]): Example {
  const length = parts.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const tokens = new Int32Array(length);
  const isTrained = new Uint8Array(length);
  let start = 0;
  for (const part of parts) {
    tokens.set(part.tokens, start);
    isTrained.fill(part.isTrained ? 1 : 0, start, start + part.tokens.length);
    start += part.tokens.length;
  }
  return { tokens, isTrained };
}
