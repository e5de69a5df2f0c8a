import { UserError } from '../base/errors.js';
import type { Dataset } from './dataset.js';
import { promptTokens, type Prompt, type PromptTokenizer } from './prompt.js';
import type { Task } from './task.js';

export interface PromptCheck {
  readonly task: Pick<Task, 'prompt' | 'stop'>;
  readonly dataset: Pick<Dataset, 'train' | 'test'>;
  readonly tokenizer: PromptTokenizer & {
    readonly unknownTokenId: number | undefined;
    readonly eosTokenIds: readonly number[];
    readonly decode: (tokens: ArrayLike<number>) => string;
  };
  readonly modelDir: string; // for the error message
  /** What an actor knows of its sampler; an engine may have been given more than the model says. */
  readonly room?: {
    readonly maxContext: number | undefined; // tokens of prompt and answer together
    readonly maxTokens: number; // of an answer
  };
}

/**
 * Checks at startup that the model can read the run's prompts, that an answer fits after them, and that the texts that end
 * an answer can occur in one.
 *
 * @throws {UserError} naming the characters that it has no token for, a text that no answer has, or if not even the
 *   shortest prompt leaves room for an answer.
 */
export function checkPrompts(check: PromptCheck): void {
  const { task, dataset, modelDir } = check;
  const prompts = [...dataset.test, ...dataset.train].map((problem) => task.prompt(problem));
  const unreadable = unreadableCharacters(prompts, check);
  if (unreadable.length > 0) {
    const shown = unreadable.slice(0, 10).map((character) => JSON.stringify(character));
    const more = unreadable.length > shown.length ? `, … (${unreadable.length} in all)` : '';
    throw new UserError(
      `the model in ${modelDir} cannot read the prompts: its tokenizer has no token for ` +
        `${shown.join(', ')}${more}; choose another --prompt-style, other problems, or a model with ` +
        'a full tokenizer (--model-dir)',
    );
  }
  refuseSpecialStop(check);
  refuseIfNoneFits(prompts, check);
}

/** Decoding drops special tokens, so a stop text made only of them never matches, unless they end a sequence anyway. */
function refuseSpecialStop({ task: { stop }, tokenizer, modelDir }: PromptCheck): void {
  const { eosTokenIds, unknownTokenId, encode, decode } = tokenizer;
  const special = stop.find((text) => {
    const tokens = encode(text);
    const isKnown = !tokens.some((token) => token === unknownTokenId);
    return isKnown && tokens.some((token) => !eosTokenIds.includes(token)) && decode(tokens) === '';
  });
  if (special === undefined) return;
  throw new UserError(
    `the prompt template ends answers at ${special}, which is a special token of the model in ${modelDir} and no part of an ` +
      "answer's text; remove it from stop, and add its id to eos_token_id in the model's generation_config.json",
  );
}

/** Characters of the prompts' own text without a token; chat templates are made for their tokenizer. */
function unreadableCharacters(
  prompts: readonly Prompt[],
  { tokenizer: { encode, unknownTokenId } }: PromptCheck,
): string[] {
  if (unknownTokenId === undefined) return [];
  const characters = new Set<string>();
  for (const prompt of prompts) {
    for (const part of ownWords(prompt)) for (const char of part) characters.add(char);
  }
  return [...characters].filter((char) => encode(char).includes(unknownTokenId)).sort();
}

function ownWords(prompt: Prompt): string[] {
  if ('text' in prompt) return [prompt.text];
  return [...prompt.chat.map(({ content }) => content), prompt.opening];
}

function refuseIfNoneFits(
  prompts: readonly Prompt[],
  { tokenizer, modelDir, room }: PromptCheck,
): void {
  if (room?.maxContext === undefined) return;
  const { maxContext, maxTokens } = room;
  const lengthOf = (prompt: Prompt) => ownWords(prompt).join('').length;
  const shortest = prompts.reduce((a, b) => (lengthOf(b) < lengthOf(a) ? b : a));
  const tokens = promptTokens(shortest, tokenizer).length;
  if (tokens + maxTokens <= maxContext) return;
  throw new UserError(
    `the shortest prompt has ${tokens} tokens, and an answer may have ${maxTokens}, but the model in ` +
      `${modelDir} has room for ${maxContext} in all; lower --max-tokens, or choose a shorter ` +
      '--prompt-style or another model (--model-dir)',
  );
}
