import assert from 'node:assert/strict';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { tinyModel } from '../../../support/tiny-model.js';
import { UpProcess } from '../../../support/up-process.js';

describe('offbeat up, given a model that cannot be run,', { timeout: 60_000 }, () => {
  it('names the key of config.json before it starts or writes anything', async () => {
    await using model = await tinyModel();
    const config = join(model.path, 'config.json');
    const json = JSON.parse(await readFile(config, 'utf8')) as Record<string, unknown>;
    await writeFile(config, JSON.stringify({ ...json, model_type: 'mamba' }));

    await using up = await UpProcess.start([`--model-dir=${model.path}`]);
    assert.equal(await up.ended(), 2);
    assert.match(up.err, /config\.json describes .*:\n {2}- model_type is "mamba": only qwen3/);
    assert.deepEqual(await readdir(up.folder), []);
  });

  it('names the weights that are missing', async () => {
    await using model = await tinyModel();
    await writeFile(join(model.path, 'model.safetensors'), '');
    await using up = await UpProcess.start([`--model-dir=${model.path}`]);
    assert.equal(await up.ended(), 2);
    assert.match(up.err, /model\.safetensors is not a valid safetensors file: it has 0 bytes/);
    assert.deepEqual(await readdir(up.folder), []);
  });
});
