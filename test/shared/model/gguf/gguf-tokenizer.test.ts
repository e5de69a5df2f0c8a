import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { convertGguf } from '../../../../shared/model/gguf/convert.js';
import { checkModelDirectory } from '../../../../shared/model/model-directory.js';
import { loadTokenizer } from '../../../../shared/model/tokenizer.js';
import { encodeGguf } from '../../../support/gguf-writer.js';
import { tinyGguf, tokens } from '../../../support/tiny-gguf.js';

describe('the tokenizer of a GGUF file', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-gguf-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  const convert = async (settings: Record<string, string | boolean | number | number[]> = {}) => {
    const { metadata, tensors } = tinyGguf();
    const path = join(folder, 'tiny.gguf');
    await writeFile(path, encodeGguf({ ...metadata, ...settings }, tensors));
    await convertGguf(path, folder, 'fp32');
  };
  const load = async () => loadTokenizer(await checkModelDirectory(folder));
  const words = async (text: string) =>
    [...(await load()).encode(text)].map((token) => tokens[token]);

  it('text is encoded by the merges, and special tokens are found in it', async () => {
    await convert();
    assert.deepEqual(await words('ab a+<|end|>'), ['ab', 'Ġa', '+', '<|end|>']);
    const tokenizer = await load();
    const text = '3 17 21=72:17*3+21 ab';
    assert.equal(tokenizer.decode(tokenizer.encode(text)), text);
    assert.deepEqual(tokenizer.eosTokenIds, [0]);
  });

  it('control tokens are not part of the decoded text, user-defined tokens are', async () => {
    await convert();
    const tokenizer = await load();
    assert.deepEqual([...tokenizer.encode('a<tool>')], [tokens.indexOf('a'), 1]);
    assert.equal(tokenizer.decode([tokens.indexOf('a'), 1, 0]), 'a<tool>');
  });

  it('the pre-tokenizer decides how numbers are cut', async () => {
    const cuts: [string, string[]][] = [
      ['smollm', ['1', '2']],
      ['qwen2', ['1', '2']],
      ['gpt-2', ['12']],
      ['llama-bpe', ['12']],
    ];
    for (const [pre, expected] of cuts) {
      await convert({ 'tokenizer.ggml.pre': pre });
      assert.deepEqual(await words('12'), expected, pre);
    }
  });

  it('a file of a Llama 3 model begins its prompts with a token, unless it says otherwise; others only if they say so', async () => {
    const bos = { 'tokenizer.ggml.bos_token_id': 0 };
    const beginning = async (settings: Record<string, string | boolean>) => {
      await convert({ ...bos, ...settings });
      return [...(await load()).beginning];
    };
    const [pre, add] = ['tokenizer.ggml.pre', 'tokenizer.ggml.add_bos_token'];
    assert.deepEqual(await beginning({ [pre]: 'llama-bpe' }), [0]);
    assert.deepEqual(await beginning({ [pre]: 'llama-bpe', [add]: false }), []);
    assert.deepEqual(await beginning({ [pre]: 'qwen2' }), []);
    assert.deepEqual(await beginning({ [pre]: 'qwen2', [add]: true }), [0]);
  });

  it('the conversation is formatted by the chat template of the file', async () => {
    await convert();
    const text = (await load()).chatText([{ role: 'user', content: '12' }]);
    assert.equal(text, 'user:12');
  });

  it('tokens that only fill the embedding are left out', async () => {
    await convert();
    const json = await readFile(join(folder, 'tokenizer.json'), 'utf8');
    assert(!json.includes('[PAD22]'));
  });

  it('a first token is added where the file asks for it, and named in the configuration', async () => {
    await convert({ 'tokenizer.ggml.bos_token_id': 0, 'tokenizer.ggml.add_bos_token': true });
    const json = JSON.parse(await readFile(join(folder, 'tokenizer.json'), 'utf8')) as {
      post_processor: object;
    };
    assert.match(JSON.stringify(json.post_processor), /TemplateProcessing.*"ids":\[0\]/);
    const config = await readFile(join(folder, 'tokenizer_config.json'), 'utf8');
    assert.match(config, /"bos_token": "<\|end\|>"/);
    assert.match(config, /"add_bos_token": true/);
  });

  it('another kind of tokenizer is refused with its name', async () => {
    const refuses = (settings: Parameters<typeof convert>[0], message: RegExp) =>
      assert.rejects(convert(settings), { name: 'UserError', message });
    await refuses(
      { 'tokenizer.ggml.model': 'llama' },
      /tokenizer cannot be read \(tokenizer\.ggml\.model: only byte-level BPE \(gpt2\) can be read\)/,
    );
    await refuses(
      { 'tokenizer.ggml.pre': 'tekken' },
      /tokenizer\.ggml\.pre is tekken; gpt-2, .* are known/,
    );
    await refuses(
      { 'tokenizer.ggml.token_type': tokens.map((_, i) => (i === 5 ? 6 : 1)) },
      /token 5 has the type 6/,
    );
  });
});
