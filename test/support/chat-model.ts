import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tokenizerFilesOf } from '../../shared/model/gguf/gguf-tokenizer.js';
import { readModelDirectory, type ModelDirectory } from '../../shared/model/model-directory.js';
import {
  qwen3ConfigText,
  randomWeights,
  writeModelDirectory,
} from '../../shared/model/model-writer.js';
import { tinySizes } from './tiny-model.js';

/** Bytes as byte-level BPE spells them: printable ones as themselves, others from U+0100 on. */
const byteLetters = Array.from({ length: 256 }, (_, byte) => byte).map((byte, _, all) => {
  const isPrintable = (value: number) =>
    (value >= 0x21 && value <= 0x7e) || (value >= 0xa1 && value <= 0xff && value !== 0xad);
  const hidden = all.slice(0, byte).filter((value) => !isPrintable(value)).length;
  return String.fromCharCode(isPrintable(byte) ? byte : 256 + hidden);
});

/** As in the vocabularies of published models: parts of a tag, and a tag's end with the beginning of the next. */
const merges = [
  'a n',
  's w',
  'an sw',
  'answ e',
  'answe r',
  't h',
  'i n',
  'th in',
  'thin k',
  '< /',
  '> </',
];
const words = merges.map((merge) => merge.replace(' ', ''));

/** A chat template such as SmolLM2's, with a system message of its own where a conversation has none. */
const chatTemplate =
  "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}{% endif %}" +
  "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/** A small random model that reads any text: byte-level BPE with a few merges and a chat template. */
export async function chatModel(seed = 0): Promise<ModelDirectory & AsyncDisposable> {
  const path = await mkdtemp(join(tmpdir(), 'offbeat-chat-'));
  const special = ['<|im_start|>', '<|im_end|>']; // the second is the end of a sequence, token 1
  const tokens = [...special, ...byteLetters, ...words];
  const sizes = { ...tinySizes, vocabSize: tokens.length, maxPositions: 1_024 };
  const configText = qwen3ConfigText(sizes);
  await writeModelDirectory(path, configText, randomWeights(configText, seed));
  const files = tokenizerFilesOf(
    {
      'tokenizer.ggml.model': 'gpt2',
      'tokenizer.ggml.pre': 'smollm',
      'tokenizer.ggml.tokens': tokens,
      'tokenizer.ggml.token_type': tokens.map((token) => (special.includes(token) ? 3 : 1)),
      'tokenizer.ggml.merges': merges,
      'tokenizer.ggml.eos_token_id': 1,
      'tokenizer.chat_template': chatTemplate,
    },
    sizes.maxPositions,
    path,
  );
  for (const [name, text] of Object.entries(files)) await writeFile(join(path, name), text);
  return {
    ...(await readModelDirectory(path)),
    [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }),
  };
}
