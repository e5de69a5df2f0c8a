import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { runFolderAt } from '../../../cli/run-folder.js';
import { newestAdapter } from '../../../cli/up/start-from.js';
import { checkpoint } from '../../support/messages.js';

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
