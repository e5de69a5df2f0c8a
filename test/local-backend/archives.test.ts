import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { extract } from 'tar-stream';
import { Archives } from '../../local-backend/checkpoint-routes.js';

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
    const tar = await archives.open(archives.offer(folder).token);
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
