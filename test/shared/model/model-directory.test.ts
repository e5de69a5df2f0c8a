import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  readModelDirectory,
  readWeights,
  type ModelDirectory,
} from '../../../shared/model/model-directory.js';
import { encodeSafetensors } from '../../../shared/model/safetensors.js';
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

  it('has one digest wherever it lies, and another once a weight differs', async () => {
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

  it('is refused without its files, naming the first that is missing', async () => {
    await assert.rejects(readModelDirectory('/nowhere'), /cannot read .*nowhere.config\.json/);
  });

  it('is refused when the weights are cut short', async () => {
    const cut = await changed('model.safetensors', (bytes) => bytes.subarray(0, 1000));
    await assert.rejects(readWeights(await readModelDirectory(cut)), {
      name: 'UserError',
      message: /not a valid safetensors file: .*download the model again/,
    });
  });

  it('is refused when a weight is missing or has the wrong shape', async () => {
    const lone = encodeSafetensors(
      new Map([['model.norm.weight', { dims: [16], data: new Float32Array(16) }]]),
    );
    const poor = await changed('model.safetensors', () => lone);
    await assert.rejects(
      readWeights(await readModelDirectory(poor)),
      /lacks \d+ weights, first model\.embed/,
    );
    const odd = encodeSafetensors(
      new Map([['model.norm.weight', { dims: [3], data: new Float32Array(3) }]]),
    );
    const bent = await changed('model.safetensors', () => odd);
    await assert.rejects(
      readWeights(await readModelDirectory(bent)),
      /model\.norm\.weight has shape \[3\]/,
    );
  });

  it('may hold its weights in shards', async () => {
    const weights = await readWeights(tiny);
    const path = await changed('config.json', (text) => text);
    await rm(join(path, 'model.safetensors'));
    const names = [...weights.keys()];
    const weightMap: Record<string, string> = {};
    for (const [shard, part] of [names.slice(0, 5), names.slice(5)].entries()) {
      const file = `model-${shard}.safetensors`;
      const tensors = new Map(part.map((name) => [name, weights.get(name)!]));
      await writeFile(join(path, file), encodeSafetensors(tensors));
      for (const name of part) weightMap[name] = file;
    }
    const index = JSON.stringify({ weight_map: weightMap });
    await writeFile(join(path, 'model.safetensors.index.json'), index);
    assert.deepEqual(await readWeights(await readModelDirectory(path)), weights);

    const escaping = JSON.stringify({ weight_map: { x: '../secret' } });
    await writeFile(join(path, 'model.safetensors.index.json'), escaping);
    await assert.rejects(readModelDirectory(path), /names \.\.\/secret, which is outside/);
  });

  describe('its tokenizer', () => {
    it('makes a token of each character and gives the text back', async () => {
      const tokenizer = await loadTokenizer(tiny);
      const tokens = tokenizer.encode('3 17 21=64:(7-3)*21/1+0');
      assert.equal(tokens.length, 23);
      assert.equal(tokenizer.decode(tokens), '3 17 21=64:(7-3)*21/1+0');
    });

    it('leaves the end of sequence out of the text', async () => {
      const tokenizer = await loadTokenizer(tiny);
      assert.deepEqual(tokenizer.eosTokenIds, [1]);
      assert.equal(tokenizer.decode([...tokenizer.encode('7-3'), 1]), '7-3');
      assert.equal(tokenizer.decode([1]), '');
      assert.equal(tokenizer.decode([]), '');
    });

    it('is refused when it is broken', async () => {
      const broken: ModelDirectory = { ...tiny, path: await changed('tokenizer.json', () => '{') };
      await assert.rejects(loadTokenizer(broken), {
        name: 'UserError',
        message: /no usable tokenizer/,
      });
    });
  });
});
