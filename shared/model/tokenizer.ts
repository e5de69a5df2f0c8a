import { readFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { AutoTokenizer, env } from '@huggingface/transformers';
import { errorText, UserError } from '../base/errors.js';
import type { ModelFolder } from './model-weights.js';

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

/** Converts text to token ids and back, as defined by the model's `tokenizer.json`. */
export interface Tokenizer {
  /** Encodes without adding special tokens, because the prompt contains those that it needs. */
  readonly encode: (text: string) => Int32Array;
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
  env.allowRemoteModels = false;
  env.localModelPath = dirname(path);
  try {
    const tokenizer = await AutoTokenizer.from_pretrained(basename(path), {
      local_files_only: true,
    });
    const template = await readTemplate(path);
    if (template !== null) tokenizer.chat_template = template;
    const own = tokenizer.eos_token_id;
    const eosTokenIds =
      directory.config.eosTokenIds.length > 0
        ? directory.config.eosTokenIds
        : typeof own === 'number'
          ? [own]
          : [];
    return {
      encode: (text) => Int32Array.from(tokenizer.encode(text, { add_special_tokens: false })),
      decode: (tokens) =>
        tokens.length === 0 // the library refuses empty input
          ? ''
          : tokenizer.decode(Array.from(tokens), {
              skip_special_tokens: true,
              clean_up_tokenization_spaces: false, // text is scored as sampled
            }),
      chatText: (messages, opensAnswer = true) => {
        if (tokenizer.chat_template === null) {
          throw new UserError(
            `the model in ${path} has no chat template, neither in tokenizer_config.json nor as ` +
              'chat_template.jinja; choose a plain prompt style, such as fewshot',
          );
        }
        return tokenizer.apply_chat_template<false>([...messages], {
          tokenize: false,
          add_generation_prompt: opensAnswer,
        });
      },
      eosTokenIds,
      unknownTokenId: tokenizer.unk_token_id, // may be undefined, contrary to its type
    };
  } catch (cause) {
    throw new UserError(
      `${path} has no usable tokenizer (${errorText(cause)}); it needs tokenizer.json and tokenizer_config.json`,
      { cause },
    );
  }
}

/**
 * The file where transformers keeps the chat template since version 5. It counts before the template in
 * tokenizer_config.json, as there; the JavaScript library reads only the latter.
 */
async function readTemplate(path: string): Promise<string | null> {
  try {
    return await readFile(join(path, 'chat_template.jinja'), 'utf8');
  } catch {
    return null;
  }
}
