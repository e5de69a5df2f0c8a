import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { AdapterFiles } from '../../local-backend/adapter-files.js';
import { sha256 } from '../../shared/base/bytes.js';
import { encodeAdapter } from '../../shared/model/lora.js';
import { parseModelConfig } from '../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../shared/model/model-writer.js';
import { tinySizes, warmAdapter } from '../support/tiny-model.js';

describe('the adapter of a sampling session', () => {
  const config = parseModelConfig(qwen3ConfigText(tinySizes), 'config.json');
  const adapter = warmAdapter(config, 1);
  const { safetensors: bytes } = encodeAdapter(adapter);
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-adapter-files-'));
  });
  after(() => rm(folder, { recursive: true }));
  const { rank, alpha } = adapter;
  const file = () => ({ folder, sha256: sha256(bytes), rank, alpha });
  const write = (content: Uint8Array) =>
    writeFile(join(folder, 'adapter_model.safetensors'), content);

  it('an adapter is read once, and stays usable if its checkpoint is deleted', async () => {
    const files = new AdapterFiles();
    await write(bytes);
    const read = await files.read(file(), config);
    assert.deepEqual(read.tensors, adapter.tensors);
    await rm(join(folder, 'adapter_model.safetensors'));
    assert.equal(await files.read(file(), config), read);
    await assert.rejects(new AdapterFiles().read(file(), config), {
      name: 'PermanentError',
      message: /cannot be read .*; create another sampling session/,
    });
  });

  it('those used last are kept, as many as fit the memory, and one that does not fit at all', async () => {
    const named = async (seed: number, others = {}) => {
      const { safetensors } = encodeAdapter(warmAdapter(config, seed));
      await write(safetensors);
      return { ...file(), sha256: sha256(safetensors), ...others };
    };
    const missing = { folder: join(folder, 'missing') };
    const size = [...adapter.tensors.values()].reduce((sum, { data }) => sum + data.byteLength, 0);

    const two = new AdapterFiles(2 * size);
    for (const seed of [1, 2, 1, 3]) await two.read(await named(seed), config);
    await two.read(await named(1, missing), config);
    await two.read(await named(3, missing), config);
    await assert.rejects(two.read(await named(2, missing), config), /cannot be read/);

    const none = new AdapterFiles(size - 1);
    for (const seed of [1, 2]) await none.read(await named(seed), config);
    await none.read(await named(2, missing), config);
    await assert.rejects(none.read(await named(1, missing), config), /cannot be read/);
  });

  it('an adapter that was replaced since the session began is refused', async () => {
    await write(encodeAdapter(warmAdapter(config, 2)).safetensors);
    await assert.rejects(new AdapterFiles().read(file(), config), {
      name: 'PermanentError',
      message: /has been replaced; create another sampling session/,
    });
  });
});
