import { z } from 'zod';
import { errorText, UserError } from '../../base/errors.js';
import type { GgufMetadata } from './gguf-file.js';

const id = z.int().nonnegative().optional();

const Vocabulary = z.object({
  'tokenizer.ggml.model': z.literal('gpt2', 'only byte-level BPE (gpt2) can be read'),
  'tokenizer.ggml.pre': z.string(),
  'tokenizer.ggml.tokens': z.array(z.string()).min(1),
  'tokenizer.ggml.token_type': z.array(z.int()),
  'tokenizer.ggml.merges': z.array(z.string().regex(/^\S+ \S+$/, 'expected two tokens')),
  'tokenizer.ggml.bos_token_id': id,
  'tokenizer.ggml.eos_token_id': id,
  'tokenizer.ggml.unknown_token_id': id,
  'tokenizer.ggml.padding_token_id': id,
  'tokenizer.ggml.add_bos_token': z.boolean().optional(), // absent: as its pre-tokenizer does
  'tokenizer.chat_template': z.string().optional(),
});

/** Types of tokens in GGUF: the others belong to vocabularies that are not BPE. */
const normal = 1;
const control = 3; // such as <|im_end|>: not part of the text
const userDefined = 4; // found in the text as a whole, and part of it
const unused = 5; // fills the embedding up to its size

/** How text is cut before the merges, in the terms of tokenizer.json. */
interface PreTokenizer {
  readonly names: readonly string[]; // in tokenizer.ggml.pre
  readonly normalizer?: 'NFC';
  readonly cuts: readonly object[];
  readonly ignoresMerges?: true; // a word that is a token is not built from parts
  readonly addsBos?: true; // where the file does not say, as in llama.cpp
}

const byteLevel = (usesRegex: boolean) => ({
  type: 'ByteLevel',
  add_prefix_space: false,
  trim_offsets: true,
  use_regex: usesRegex,
});

/** Cuts as GPT-4's tokenizer does, with numbers of at most so many digits. */
const splitting = (digits: string) => ({
  type: 'Split',
  pattern: {
    Regex:
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" +
      digits +
      '| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+',
  },
  behavior: 'Isolated',
  invert: false,
});

const preTokenizers: readonly PreTokenizer[] = [
  { names: ['gpt-2', 'gpt2'], cuts: [byteLevel(true)] },
  {
    names: ['smollm'],
    cuts: [{ type: 'Digits', individual_digits: true }, byteLevel(true)],
  },
  {
    names: ['qwen2', 'deepseek-r1-qwen'],
    normalizer: 'NFC',
    cuts: [splitting('\\p{N}'), byteLevel(false)],
  },
  {
    names: ['llama-bpe', 'llama3', 'llama-v3'],
    cuts: [splitting('\\p{N}{1,3}'), byteLevel(false)],
    ignoresMerges: true,
    addsBos: true,
  },
];

/**
 * The tokenizer's files by name: tokenizer.json, tokenizer_config.json and, if there is a chat template,
 * chat_template.jinja.
 *
 * @throws {UserError} naming the key of the file that is missing, wrong or not supported.
 */
export function tokenizerFilesOf(
  metadata: GgufMetadata,
  maxPositions: number,
  path: string,
): Record<string, string> {
  const parsed = Vocabulary.safeParse(metadata);
  if (!parsed.success) {
    throw new UserError(
      `${path}: its tokenizer cannot be read (${errorText(parsed.error).slice(0, 300)}); get the model's own ` +
        'files from the hub',
    );
  }
  const vocabulary = parsed.data;
  const tokens = vocabulary['tokenizer.ggml.tokens'];
  const types = vocabulary['tokenizer.ggml.token_type'];
  const pre = vocabulary['tokenizer.ggml.pre'];
  const known = preTokenizers.find(({ names }) => names.includes(pre));
  if (known === undefined) {
    const names = preTokenizers.flatMap((each) => each.names).join(', ');
    throw new UserError(
      `${path}: tokenizer.ggml.pre is ${pre}; ${names} are known: get the model's own files from the hub`,
    );
  }
  const strange = tokens.findIndex(
    (_, i) => ![normal, control, userDefined, unused].includes(types[i] ?? 0),
  );
  if (strange !== -1) {
    throw new UserError(
      `${path}: token ${strange} has the type ${types[strange] ?? 'none'}, which byte-level BPE does not have; download it again`,
    );
  }

  const used = [...tokens.entries()].filter(([i]) => types[i] !== unused);
  const added = used.filter(([i]) => types[i] !== normal);
  const name = (key: 'bos' | 'eos' | 'unknown' | 'padding') =>
    tokens[vocabulary[`tokenizer.ggml.${key}_token_id`] ?? -1];
  const { 'tokenizer.ggml.add_bos_token': addsBos = known.addsBos === true } = vocabulary;
  const bos = addsBos ? name('bos') : undefined;
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added.map(([i, content]) => ({
      id: i,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: types[i] === control,
    })),
    normalizer: known.normalizer === undefined ? null : { type: known.normalizer },
    pre_tokenizer: { type: 'Sequence', pretokenizers: known.cuts },
    post_processor: bos === undefined ? byteLevel(true) : beginningWith(bos, tokens.indexOf(bos)),
    decoder: byteLevel(true),
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: known.ignoresMerges ?? false,
      vocab: Object.fromEntries(used.map(([i, token]) => [token, i])),
      merges: vocabulary['tokenizer.ggml.merges'],
    },
  };
  const special = {
    bos_token: name('bos'),
    eos_token: name('eos'),
    unk_token: name('unknown'),
    pad_token: name('padding'),
  };
  const config = {
    tokenizer_class: 'PreTrainedTokenizerFast',
    ...Object.fromEntries(Object.entries(special).filter(([, token]) => token !== undefined)),
    add_bos_token: bos !== undefined,
    clean_up_tokenization_spaces: false,
    model_max_length: maxPositions,
  };
  const template = vocabulary['tokenizer.chat_template'];
  return {
    'tokenizer.json': `${JSON.stringify(tokenizer)}\n`,
    'tokenizer_config.json': `${JSON.stringify(config, undefined, 2)}\n`,
    ...(template !== undefined && { 'chat_template.jinja': template }),
  };
}

/** Puts a token before each text, where special tokens are asked for. */
function beginningWith(token: string, tokenId: number) {
  const text = (letter: 'A' | 'B') => ({ Sequence: { id: letter, type_id: 0 } });
  const first = { SpecialToken: { id: token, type_id: 0 } };
  return {
    type: 'TemplateProcessing',
    single: [first, text('A')],
    pair: [first, text('A'), first, text('B')],
    special_tokens: { [token]: { id: token, ids: [tokenId], tokens: [token] } },
  };
}
