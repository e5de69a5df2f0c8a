import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { runFolderAt } from '../../../cli/run-folder.js';
import { findStart, newestAdapter } from '../../../cli/up/start-from.js';
import { checkpoint, runConfig } from '../../support/messages.js';

describe('the adapter of a run', () => {
  let runsDir: string;
  before(async () => {
    runsDir = await mkdtemp(join(tmpdir(), 'offbeat-adapter-'));
  });
  after(() => rm(runsDir, { recursive: true }));

  it('the adapter of a run is that of its last checkpoint, if this machine has it', async () => {
    const folder = runFolderAt(runsDir, 'r');
    assert.equal(await newestAdapter(folder), undefined);
    const adapter = join(folder.checkpoints, 'id', 'weights', 'state-000012', 'adapter');
    await mkdir(adapter, { recursive: true });
    assert.equal(await newestAdapter(folder), undefined);
    const saved = (statePath: string) =>
      writeFile(
        join(folder.path, 'checkpoint.json'),
        JSON.stringify({ v: 1, run: 'r', checkpoint: checkpoint({ statePath }) }),
      );
    await saved('tinker://id/weights/state-000012');
    assert.equal(await newestAdapter(folder), adapter);
    await saved('tinker://id/weights/state-000013');
    assert.equal(await newestAdapter(folder), undefined);
  });
});

describe('the run that another starts from', () => {
  let runsDir: string;
  before(async () => {
    runsDir = await mkdtemp(join(tmpdir(), 'offbeat-start-'));
  });
  after(() => rm(runsDir, { recursive: true }));
  const config = runConfig({ run: 'warm' });
  const write = async (backendUrl: string | undefined) => {
    const { path, launch } = runFolderAt(runsDir, 'warm');
    await mkdir(path, { recursive: true });
    const files = {
      [launch]: { run: 'warm', launcher: { sampler: 'onnx', backendUrl } },
      [join(path, 'config.json')]: config,
      [join(path, 'checkpoint.json')]: {
        ...{ v: 1, run: 'warm' },
        checkpoint: checkpoint({ step: 12, statePath: 'tinker://id/weights/state-000012' }),
      },
    };
    for (const [file, json] of Object.entries(files)) await writeFile(file, JSON.stringify(json));
  };
  const plain = { digest: config.model.digest, digestWithoutTemplate: config.model.digest };
  const found = (backendUrl: string | undefined, digests = plain) =>
    findStart('warm', {
      ...{ runsDir, modelDir: 'model', backendUrl, digests },
      ...{ loraRank: config.lora.rank, loraAlpha: undefined },
    });

  it('the server of both runs may have another address than before, and a server finds no weights in a folder', async () => {
    await write('http://127.0.0.1:10610');
    for (const url of ['http://127.0.0.1:10610', 'http://localhost:10610/']) {
      assert.equal((await found(url)).path, 'tinker://id/weights/state-000012');
    }
    await assert.rejects(found(undefined), /add --backend-url http:\/\/127\.0\.0\.1:10610/);
    await write(undefined);
    await assert.rejects(found('http://127.0.0.1:10610'), /leave out --backend-url/);
  });

  it('the model must be that of the run, which may not have counted the chat template', async () => {
    const url = 'http://127.0.0.1:10610';
    await write(url);
    assert.equal((await found(url, { ...plain, digest: 'with a template' })).run, 'warm@12');
    const other = { digest: 'other', digestWithoutTemplate: 'other' };
    await assert.rejects(found(url, other), /model has other: name its model with --model-dir/);
  });
});
