/** The characters that the embedded model knows; their order fixes the token ids. */
const alphabet = '0123456789+-*/() =:';
const special = ['<pad>', '<eos>', '<unk>'];

/** The vocabulary size of the character tokenizer. */
export const characterVocabSize = special.length + alphabet.length;
export const characterEosTokenId = special.indexOf('<eos>');

/**
 * The files of a tokenizer with one token per character: a BPE without merges, which every reader of
 * `tokenizer.json` supports.
 *
 * @returns file name → text, for a Hugging Face model directory.
 */
export function characterTokenizerFiles(): Record<string, string> {
  const vocab = Object.fromEntries(
    [...special, ...Array.from(alphabet)].map((token, id) => [token, id]),
  );
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: special.map((content, id) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: null,
    post_processor: null,
    decoder: { type: 'Fuse' },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: '<unk>',
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab,
      merges: [],
    },
  };
  const config = {
    tokenizer_class: 'PreTrainedTokenizerFast',
    eos_token: '<eos>',
    pad_token: '<pad>',
    unk_token: '<unk>',
    clean_up_tokenization_spaces: false,
    model_max_length: 64,
  };
  return {
    'tokenizer.json': `${JSON.stringify(tokenizer, undefined, 1)}\n`,
    'tokenizer_config.json': `${JSON.stringify(config, undefined, 1)}\n`,
  };
}
