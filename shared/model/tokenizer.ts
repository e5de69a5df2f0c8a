import { basename, dirname, resolve } from 'node:path';
import { AutoTokenizer, env } from '@huggingface/transformers';
import { errorText, UserError } from '../errors.js';
import type { ModelDirectory } from './model-directory.js';

/** Text to token ids and back, as the model's own `tokenizer.json` defines it. */
export interface Tokenizer {
  /** Without special tokens: a prompt says itself what it begins with. */
  encode(text: string): Int32Array;
  /** Special tokens are left out of the text. */
  decode(tokens: ArrayLike<number>): string;
  /** A rollout ends at the first of these. */
  readonly eosTokenIds: readonly number[];
}

/**
 * Loads the tokenizer of a local directory; nothing is ever fetched.
 *
 * @throws {UserError} when the directory's tokenizer files are missing or broken.
 */
export async function loadTokenizer(
  directory: Pick<ModelDirectory, 'path' | 'config'>,
): Promise<Tokenizer> {
  const path = resolve(directory.path);
  env.allowRemoteModels = false;
  env.localModelPath = dirname(path);
  try {
    const tokenizer = await AutoTokenizer.from_pretrained(basename(path), {
      local_files_only: true,
    });
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
        tokens.length === 0 // which the library refuses
          ? ''
          : tokenizer.decode(Array.from(tokens), {
              skip_special_tokens: true,
              clean_up_tokenization_spaces: false, // text is judged as it was sampled
            }),
      eosTokenIds,
    };
  } catch (cause) {
    throw new UserError(
      `${path} has no usable tokenizer (${errorText(cause)}); it needs tokenizer.json and tokenizer_config.json`,
      { cause },
    );
  }
}
