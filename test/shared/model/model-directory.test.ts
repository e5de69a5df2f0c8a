import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { cp, mkdir, mkdtemp, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  assertUnchanged,
  checkModelDirectory,
  readModelDirectory,
  type ModelDirectory,
} from '../../../shared/model/model-directory.js';
import { loadTokenizer } from '../../../shared/model/tokenizer.js';
import { tinyModel } from '../../support/tiny-model.js';

describe('a model directory', () => {
  let tiny: Awaited<ReturnType<typeof tinyModel>>;
  let copy: string;
  before(async () => {
    tiny = await tinyModel();
    copy = await mkdtemp(join(tmpdir(), 'offbeat-copy-'));
  });
  after(async () => {
    await tiny[Symbol.asyncDispose]();
    await rm(copy, { recursive: true });
  });
  const changed = async (file: string, change: (bytes: Buffer) => Uint8Array | string) => {
    await cp(tiny.path, copy, { recursive: true });
    await writeFile(join(copy, file), change(await readFile(join(copy, file))));
    return copy;
  };

  it('a model directory has as digest the SHA-256 of its configuration, tokenizer and weights', async () => {
    const files = ['config.json', 'tokenizer.json', 'model.safetensors'];
    const hash = createHash('sha256');
    for (const file of files) hash.update(await readFile(join(tiny.path, file)));
    assert.equal(tiny.digest, hash.digest('hex'));
  });

  it('a model directory has one digest at every path, and another once a weight differs', async () => {
    assert.equal(
      (await readModelDirectory(await changed('config.json', (text) => text))).digest,
      tiny.digest,
    );
    const bent = await changed('model.safetensors', (bytes) => {
      bytes[bytes.length - 1]! ^= 1;
      return bytes;
    });
    assert.notEqual((await readModelDirectory(bent)).digest, tiny.digest);
  });

  it('a model directory that was written again counts as changed only if the content differs', async () => {
    await using directory = await tinyModel();
    const file = join(directory.path, 'model.safetensors');
    const bytes = await readFile(file);
    const time = 1_700_000_000; // in seconds
    await utimes(file, time, time);
    const model = await readModelDirectory(directory.path);
    await assertUnchanged(model);
    await writeFile(file, bytes);
    await assertUnchanged(model);
    await writeFile(file, bytes.with(bytes.length - 1, bytes.at(-1)! ^ 1));
    await utimes(file, time, time); // as by a copy that keeps the time
    const refused = (what: string) => ({
      name: 'UserError',
      message: new RegExp(
        `${model.path} has changed since .* started: ${what}; .* restart the server`,
      ),
    });
    await assert.rejects(assertUnchanged(model), refused('other content in model.safetensors'));
    const generation = join(model.path, 'generation_config.json');
    await writeFile(generation, '{}');
    const both = 'other content in generation_config.json, model.safetensors';
    await assert.rejects(assertUnchanged(model), refused(both));
    await rm(file);
    await assert.rejects(assertUnchanged(model), refused('.* no model.safetensors.*'));
    await rm(generation);
    await writeFile(file, bytes);
    await assertUnchanged(model);
  });

  it('a model directory has another digest with a chat template, wherever it is, and the same without it', async () => {
    await using model = await tinyModel();
    const [settings, template] = ['tokenizer_config.json', 'chat_template.jinja'].map((file) =>
      join(model.path, file),
    ) as [string, string];
    const digests = async () => {
      const { digest, digestWithoutTemplate } = await readModelDirectory(model.path);
      assert.equal(digestWithoutTemplate, model.digest);
      return digest;
    };
    assert.equal(await digests(), model.digest);
    const plain = JSON.parse(await readFile(settings, 'utf8')) as object;
    const setIn = (chat_template: unknown) =>
      writeFile(settings, JSON.stringify({ ...plain, chat_template }));

    await writeFile(template, '{{ messages }}');
    const inFile = await digests();
    await setIn('{{ not used }}');
    assert.equal(await digests(), inFile, 'the file counts first');
    await rm(template);
    const others = [await digests()];
    await setIn([{ name: 'default', template: '{{ messages }}' }]);
    others.push(await digests());
    assert.equal(new Set([model.digest, inFile, ...others]).size, 4);
    await setIn('{{ messages }}');
    assert.equal(await digests(), inFile);
    await setIn(null);
    assert.equal(await digests(), model.digest);
    await rm(settings);
    assert.equal(await digests(), model.digest);
  });

  it('a model directory is refused if its chat template is there and cannot be read, by name', async () => {
    await using model = await tinyModel();
    await mkdir(join(model.path, 'chat_template.jinja'));
    const named = { name: 'UserError', message: /^cannot read \S+chat_template\.jinja \(EISDIR/ };
    await assert.rejects(loadTokenizer(model), named);
    await assert.rejects(readModelDirectory(model.path), named);
    await rm(join(model.path, 'chat_template.jinja'), { recursive: true });
    await writeFile(join(model.path, 'tokenizer_config.json'), '{');
    await assert.rejects(readModelDirectory(model.path), {
      name: 'UserError',
      message: /tokenizer_config\.json is not usable/,
    });
  });

  it('a model directory ends answers at the ids of generation_config.json, as transformers does', async () => {
    await using model = await tinyModel();
    const file = join(model.path, 'generation_config.json');
    const [own] = model.config.eosTokenIds;
    await writeFile(file, JSON.stringify({ eos_token_id: [3, own], temperature: 0.7 }));
    const found = await readModelDirectory(model.path);
    assert.deepEqual(found.config.eosTokenIds, [3, own]);
    assert.deepEqual((await loadTokenizer(found)).eosTokenIds, [3, own]);
    assert.notEqual(found.digest, model.digest, 'a rollout of it ends elsewhere');

    await writeFile(file, JSON.stringify({ eos_token_id: 5 }));
    assert.deepEqual((await checkModelDirectory(model.path)).config.eosTokenIds, [5]);
    await writeFile(file, JSON.stringify({ eos_token_id: null, do_sample: true }));
    assert.deepEqual((await checkModelDirectory(model.path)).config.eosTokenIds, [own]);
  });

  it('a model directory is refused if the end-of-sequence ids of generation_config.json are not token ids', async () => {
    await using model = await tinyModel();
    const file = join(model.path, 'generation_config.json');
    for (const text of ['{"eos_token_id": "</s>"}', '{"eos_token_id": -1}', 'not json']) {
      await writeFile(file, text);
      await assert.rejects(checkModelDirectory(model.path), {
        name: 'UserError',
        message: /generation_config\.json is not usable .*; eos_token_id must be one token id or a/,
      });
    }
  });

  it('a model directory is refused without its files, with the first missing one named', async () => {
    await assert.rejects(checkModelDirectory('/nowhere'), /cannot read .*nowhere.config\.json/);
    const path = await changed('config.json', (text) => text);
    await rm(join(path, 'tokenizer.json'));
    await assert.rejects(checkModelDirectory(path), /cannot read .*tokenizer\.json/);
  });

  describe('its tokenizer', () => {
    it('its tokenizer encodes each character as a token and decodes the text back', async () => {
      const tokenizer = await loadTokenizer(tiny);
      const tokens = tokenizer.encode('3 17 21=64:(7-3)*21/1+0');
      assert.equal(tokens.length, 23);
      assert.equal(tokenizer.decode(tokens), '3 17 21=64:(7-3)*21/1+0');
    });

    it('its tokenizer leaves the end of sequence out of the text', async () => {
      const tokenizer = await loadTokenizer(tiny);
      assert.deepEqual(tokenizer.eosTokenIds, [1]);
      assert.equal(tokenizer.decode([...tokenizer.encode('7-3'), 1]), '7-3');
      assert.equal(tokenizer.decode([1]), '');
      assert.equal(tokenizer.decode([]), '');
    });

    it('its tokenizer is refused if it is malformed', async () => {
      const broken: ModelDirectory = { ...tiny, path: await changed('tokenizer.json', () => '{') };
      await assert.rejects(loadTokenizer(broken), {
        name: 'UserError',
        message: /no usable tokenizer/,
      });
    });
  });
});
