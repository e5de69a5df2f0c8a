import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createRandom } from '../../shared/base/random.js';
import { formatOf } from '../../shared/model/gguf/block-formats.js';
import { checkModelDirectory } from '../../shared/model/model-directory.js';
import { loadTokenizer, type ChatMessage } from '../../shared/model/tokenizer.js';
import { encodeGguf, type StoredTensor } from '../support/gguf-writer.js';
import { runOffbeat } from '../support/offbeat.js';
import { tinyGguf } from '../support/tiny-gguf.js';
import { ensurePackages, pathOf } from './packages.js';
import { smolLm2File } from './smollm2.js';
import { runPython, type SuiteContext } from './suite.js';

/** transformers' reader of GGUF files. */
const reader = 'gguf==0.19.0';

const texts = [
  'Using the numbers 3, 17 and 21, make 72.',
  '3 17 21=72:17*3+21',
  '  several   spaces,\n\n\ttabs and lines \n',
  "It's what they'd said: CamelCase, snake_case and 1,234.56 €",
  'Café déjà vu — “quotes” …',
  '用这些数字：3、17 和 21，得到 72。',
  '🙂🙃 👩‍👩‍👧 ᚠᛇᚻ',
  '<|im_start|>user\nHi<|im_end|>\n<answer> (1 + 2) / 3 </answer>',
];
const chat: readonly ChatMessage[] = [
  { role: 'user', content: 'What is the capital of France?' },
  { role: 'assistant', content: 'Paris.' },
  { role: 'user', content: 'And of Italy?' },
];

/**
 * `offbeat model get` of SmolLM2-135M-Instruct, compared with what transformers reads from the same file: every weight, the
 * tokens of some texts and a conversation. And the weights of a small file of each family, whose matrices have all formats.
 */
export async function testGguf(context: SuiteContext): Promise<void> {
  const packages = await ensurePackages(context, [reader]);
  const { folder } = context;
  const smol = await smolLm2File(context);
  const files = [
    { file: smol, dtype: 'fp32', out: 'smol-fp32' },
    { file: smol, dtype: 'bf16', out: 'smol-bf16' },
  ];
  await mkdir(join(folder, 'small'));
  for (const family of ['llama', 'qwen2', 'qwen3'] as const) {
    const file = join(folder, 'small', `${family}.gguf`);
    await writeFile(file, mixedGguf(family));
    files.push({ file, dtype: 'fp32', out: `${family}-fp32` });
  }
  for (const { file, dtype, out } of files) {
    await context.step(`offbeat model get, ${out}`, 'ends with 0', async () => {
      const words = ['model', 'get', file, '--dtype', dtype, '--out', out];
      const { code, out: text, err } = await runOffbeat(words, folder);
      assert.equal(code, 0, `${text}${err}`);
      return code;
    });
  }
  const tokenizer = await loadTokenizer(await checkModelDirectory(join(folder, 'smol-bf16')));
  const ours = {
    files,
    texts: texts.map((text) => {
      const ids = tokenizer.encode(text);
      return { text, ids: [...ids], decoded: tokenizer.decode(ids) };
    }),
    chat,
    chatText: tokenizer.chatText(chat),
  };
  await writeFile(join(folder, 'ours.json'), JSON.stringify(ours));
  await runPython(context, 'gguf/compare.py', [], { ...pathOf(packages), HF_HUB_OFFLINE: '1' });
}

/** F16, Q4_0, Q4_1, Q8_0 and BF16, by ggml's numbers. */
const formats = [1, 2, 3, 8, 30];

/** The small model with random matrices in these formats, in turn. */
function mixedGguf(family: 'llama' | 'qwen2' | 'qwen3'): Uint8Array {
  const { metadata, tensors } = tinyGguf(family);
  const random = createRandom(`mixed ${family}`);
  const matrices = Object.entries(tensors).filter(([, { dims }]) => dims.length === 2);
  const mixed = matrices.map(([name, { dims }], i): [string, StoredTensor] => {
    const type = formats[i % formats.length]!;
    const format = formatOf(type)!;
    const count = dims.reduce((product, dim) => product * dim, 1) / format.elements;
    const bytes = Uint8Array.from({ length: count * format.bytes }, () => random.next() * 256);
    // Half-precision numbers are finite if their upper byte is that of a number below 2.
    const halves = format.name === 'Q4_1' ? [0, 2] : [0];
    for (let block = 0; block < count; block++) {
      for (const at of halves) bytes[block * format.bytes + at + 1]! &= 0xbf;
    }
    return [name, { dims, type, bytes }];
  });
  return encodeGguf(metadata, { ...tensors, ...Object.fromEntries(mixed) });
}
