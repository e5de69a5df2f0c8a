import { join, resolve } from 'node:path';
import { z } from 'zod';
import { errorText, UserError } from '../base/errors.js';
import { readJson } from '../base/read-json.js';
import { readTemplateFile } from './chat-template.js';
import type { ModelFolder } from './model-weights.js';

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

/** Converts text to token ids and back, as defined by the model's `tokenizer.json`. */
export interface Tokenizer {
  /** Encodes without adding special tokens: a chat template writes those that it needs, and a continuation needs none. */
  readonly encode: (text: string) => Int32Array;
  /** The tokens before a plain text, as the tokenizer's post-processor adds them: `<|begin_of_text|>` for Llama 3. */
  readonly beginning: readonly number[];
  /** Decodes without special tokens. */
  readonly decode: (tokens: ArrayLike<number>) => string;
  /**
   * The conversation formatted by the model's chat template, up to the start of the assistant's answer.
   *
   * @param opensAnswer false: as it stands, without the start of another answer.
   * @throws {UserError} if the model has no chat template.
   */
  readonly chatText: (messages: readonly ChatMessage[], opensAnswer?: boolean) => string;
  /** A rollout ends at the first of these. */
  readonly eosTokenIds: readonly number[];
  /** The token for text outside the vocabulary; undefined if every text can be encoded. */
  readonly unknownTokenId: number | undefined;
}

/**
 * Loads the tokenizer of a local directory; nothing is downloaded.
 *
 * @throws {UserError} when the directory's tokenizer files are missing or broken.
 */
export async function loadTokenizer(directory: ModelFolder): Promise<Tokenizer> {
  const path = resolve(directory.path);
  const template = await readTemplateFile(path); // the library reads only that of tokenizer_config.json
  try {
    const library = (await openPlain(path, template)) ?? (await openTransformers(path, template));
    const own = library.eosTokenId;
    const eosTokenIds =
      directory.config.eosTokenIds.length > 0
        ? directory.config.eosTokenIds
        : own === undefined
          ? []
          : [own];
    return {
      encode: (text) => Int32Array.from(library.encode(text)),
      beginning: beginningOf(library),
      // The library refuses empty input.
      decode: (tokens) => (tokens.length === 0 ? '' : library.decode(Array.from(tokens))),
      chatText: (messages, opensAnswer = true) => {
        if (library.chatText === undefined) {
          throw new UserError(
            `the model in ${path} has no chat template, neither in tokenizer_config.json nor as ` +
              'chat_template.jinja; choose a plain prompt style, such as fewshot',
          );
        }
        return library.chatText([...messages], opensAnswer);
      },
      eosTokenIds,
      unknownTokenId: unknownTokenIn(library),
    };
  } catch (cause) {
    throw new UserError(
      `${path} has no usable tokenizer (${errorText(cause)}); it needs tokenizer.json and tokenizer_config.json`,
      { cause },
    );
  }
}

/** What a library makes of the files. */
interface Library {
  readonly encode: (text: string, addsSpecialTokens?: boolean) => number[];
  readonly decode: (tokens: number[]) => string;
  readonly chatText?: (messages: ChatMessage[], opensAnswer: boolean) => string;
  readonly eosTokenId: number | undefined;
  readonly unknownTokenId: number | undefined;
}

/** Some tokenizers can encode every text, and name a special token as that for unknown text, as GPT-2's does. */
function unknownTokenIn({ unknownTokenId, encode }: Library): number | undefined {
  if (unknownTokenId === undefined) return undefined;
  // Two characters that hardly a vocabulary has: some tokenizers drop the first, which is of no script.
  return encode('\u{10fffd}\u{3134a}').includes(unknownTokenId) ? unknownTokenId : undefined;
}

/** The special tokens that are added before a text; those after it would end a prompt. */
function beginningOf({ encode }: Library): number[] {
  const [plain, whole] = [encode('1'), encode('1', true)];
  const start = whole.findIndex((_, i) => plain.every((token, j) => token === whole[i + j]));
  return whole.slice(0, Math.max(0, start));
}

const decoding = {
  skip_special_tokens: true,
  clean_up_tokenization_spaces: false, // text is scored as sampled
} as const;

/** A tokenizer without a chat template, and without rules of a class of its own. */
const PlainTokenizerConfig = z.looseObject({
  tokenizer_class: z.literal('PreTrainedTokenizerFast'),
  eos_token: z.string(),
  unk_token: z.string(),
  chat_template: z.undefined().optional(),
});

/** A part of @huggingface/tokenizers, whose own declarations cannot be resolved from ES modules. */
interface PlainTokenizers {
  readonly Tokenizer: new (
    tokenizer: object,
    config: object,
  ) => {
    encode(text: string, options: { add_special_tokens: boolean }): { readonly ids: number[] };
    decode(tokens: number[], options: typeof decoding): string;
    token_to_id(token: string): number | undefined;
  };
}

/**
 * Opens a plain tokenizer with the part of transformers that does the work: the whole of it costs each process of a
 * run 0.15 s of processor time and 15 MB, most of it for images.
 *
 * @returns undefined if the tokenizer is not plain.
 */
async function openPlain(path: string, template: string | undefined): Promise<Library | undefined> {
  if (template !== undefined) return undefined;
  const config = PlainTokenizerConfig.safeParse(
    await readJson(join(path, 'tokenizer_config.json')).catch(() => undefined),
  );
  if (!config.success) return undefined;
  const { Tokenizer: PlainTokenizer } =
    (await import('@huggingface/tokenizers')) as unknown as PlainTokenizers;
  const tokenizer = new PlainTokenizer(
    z.looseObject({}).parse(await readJson(join(path, 'tokenizer.json'))),
    config.data,
  );
  return {
    encode: (text, addsSpecialTokens = false) =>
      tokenizer.encode(text, { add_special_tokens: addsSpecialTokens }).ids,
    decode: (tokens) => tokenizer.decode(tokens, decoding),
    eosTokenId: tokenizer.token_to_id(config.data.eos_token),
    unknownTokenId: tokenizer.token_to_id(config.data.unk_token),
  };
}

async function openTransformers(path: string, template: string | undefined): Promise<Library> {
  const { AutoTokenizer, env } = await import('@huggingface/transformers');
  env.allowRemoteModels = false;
  // The whole path: a name alone would have to be one that a repository may have.
  const tokenizer = await AutoTokenizer.from_pretrained(path, { local_files_only: true });
  if (template !== undefined) tokenizer.chat_template = template;
  const own = tokenizer.eos_token_id;
  const hasTemplate = (tokenizer.chat_template ?? null) !== null; // null if there is none, contrary to its type
  return {
    encode: (text, addsSpecialTokens = false) =>
      tokenizer.encode(text, { add_special_tokens: addsSpecialTokens }),
    decode: (tokens) => tokenizer.decode(tokens, decoding),
    ...(hasTemplate && {
      chatText: (messages: ChatMessage[], opensAnswer: boolean) =>
        tokenizer.apply_chat_template<false>(messages, {
          tokenize: false,
          add_generation_prompt: opensAnswer,
          chat_template: withFixedDate(tokenizer.get_chat_template()),
        }),
    }),
    eosTokenId: typeof own === 'number' ? own : undefined,
    unknownTokenId: tokenizer.unk_token_id, // may be undefined, contrary to its type
  };
}

/** The parts of a date as strftime names them. */
const fixedDate = Object.entries({
  ...{ '%Y': '2024', '%m': '07', '%d': '26', '%b': 'Jul', '%B': 'July', '%H': '00', '%M': '00' },
  '%%': '%',
});

/**
 * A chat template that asks for today's date, given always the one that Llama 3's template names where it can ask for none.
 * Actors and the reward service must make the same prompt, on any day and in any time zone.
 */
function withFixedDate(template: string): string {
  if (!template.includes('strftime_now')) return template;
  const date = fixedDate.map(([part, value]) => `| replace('${part}', '${value}')`).join(' ');
  return `{% macro strftime_now(format) %}{{ format ${date} }}{% endmacro %}{{ '' }}${template}`;
}
