import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { extract } from 'tar-stream';
import { Archives } from '../../local-backend/archives.js';
import { decodeAdapter } from '../../shared/model/lora.js';
import { type Json, startOn, tinyModel, Wire } from './running-backend.js';

describe('a download link', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-archive-'));
    await writeFile(join(folder, 'adapter_config.json'), '{"r":4}');
    await writeFile(join(folder, 'adapter_model.safetensors'), 'weights');
  });
  after(() => rm(folder, { recursive: true }));

  it('a download link returns a tar of the two adapter files', async () => {
    const archives = new Archives();
    const { body: tar, type } = await archives.open(archives.offer(folder).token);
    assert.equal(type, 'application/x-tar');
    const found: Record<string, string> = {};
    const reader = extract();
    reader.end(tar);
    for await (const entry of reader) {
      let text = '';
      for await (const part of entry as AsyncIterable<Buffer>) text += part.toString();
      found[entry.header.name] = text;
    }
    assert.deepEqual(found, {
      'adapter_config.json': '{"r":4}',
      'adapter_model.safetensors': 'weights',
    });
  });

  it('a download link of one file returns it as it is', async () => {
    const archives = new Archives();
    const { body } = await archives.open(archives.offer(folder, 'adapter_config.json').token);
    assert.equal(Buffer.from(body).toString(), '{"r":4}');
  });

  it('a download link expires after 15 minutes', async () => {
    let now = 0;
    const archives = new Archives(() => now);
    const { token } = archives.offer(folder);
    now = 15 * 60_000 - 1;
    await archives.open(token);
    now += 1;
    await assert.rejects(archives.open(token), /expired/);
  });

  it('a download link is refused for an unknown token', async () => {
    const archives = new Archives();
    archives.offer(folder);
    await assert.rejects(archives.open('AAAA'), /unknown/);
  });
});

describe('the checkpoints of a run', () => {
  it('more than a hundred are listed too, since the SDK reads one page', async () => {
    await using directory = await tinyModel();
    await using backend = await startOn(directory.path);
    const wire = new Wire(backend.url);
    const model = await wire.createModel(await wire.createSession());
    for (let seq_id = 1; seq_id <= 101; seq_id++) {
      const saving = { model_id: model, path: `step-${seq_id}`, seq_id };
      await wire.result(await wire.post('save_weights_for_sampler', saving));
    }
    const listed = async (query = '') => {
      const { checkpoints } = await wire.get(`training_runs/${model}/checkpoints${query}`);
      return (checkpoints as Json[]).map((one) => one['checkpoint_id']);
    };
    const all = await listed();
    assert.equal(all.length, 101);
    assert.equal(all.at(-1), 'sampler_weights/step-101');
    assert.deepEqual(await listed('?limit=2&offset=99'), all.slice(99));
  });
});

describe('external weights', () => {
  it('external weights are listed, and each file of the adapter has a link of its own', async () => {
    await using directory = await tinyModel();
    await using backend = await startOn(directory.path);
    const wire = new Wire(backend.url);
    const model = await wire.createModel(await wire.createSession());
    const save = (path: string, seq_id: number, more = {}) =>
      wire.tryPost('save_weights_external', { model_id: model, path, seq_id, ...more });
    const saved = await wire.result((await (await save('out', 1)).json()) as Json);
    assert.equal(saved['path'], `tinker://${model}/external_weights/out`);

    const place = `training_runs/${model}/checkpoints`;
    const { checkpoints } = await wire.get(place);
    assert.deepEqual(
      (checkpoints as Json[]).map((one) => [one['checkpoint_id'], one['checkpoint_type']]),
      [['external_weights/out', 'external']],
    );
    const { urls } = await wire.get(`${place}/external_weights/out/external_weights_urls`);
    const links = urls as Record<string, string>;
    assert.deepEqual(Object.keys(links), ['adapter_config.json', 'adapter_model.safetensors']);
    const [config, weights] = await Promise.all(
      Object.values(links).map(async (url) => Buffer.from(await (await fetch(url)).arrayBuffer())),
    );
    assert.equal((JSON.parse(config!.toString()) as Json)['r'], 4);
    assert.equal(decodeAdapter(weights!, { rank: 4, alpha: 8 }).rank, 4);

    const encrypted = await save('secret', 2, { age_encryption_recipients: ['age1…'] });
    assert.equal(encrypted.status, 422);
    assert.match(await encrypted.text(), /age_encryption_recipients is .*not supported here/);
    await wire.result((await (await save('out', 3)).json()) as Json);
    const promise = await wire.post('save_weights_for_sampler', {
      ...{ model_id: model, path: 'v1', seq_id: 4 },
    });
    await wire.result(promise);
    const other = await wire.fetch(`/api/v1/${place}/sampler_weights/v1/external_weights_urls`);
    assert.equal(other.status, 400);
    assert.match(await other.text(), /is no path of save_weights_external/);
  });
});
