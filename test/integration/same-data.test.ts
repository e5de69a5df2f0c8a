import assert from 'node:assert/strict';
import { copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { openTask } from '../../shared/tasks/registry.js';
import { countdownSpec } from '../support/countdown-task.js';
import { hasJoined, ScoringGround, type ScoringRun } from '../support/scoring-ground.js';
import { ServiceProcess } from '../support/service-process.js';

const rows = ['nums,target', '3 7 12,22', '4 5 6,15', '7 8 9,24', '2 3 4,9'];

describe('services of a run whose problems are in a file', { timeout: 300_000 }, () => {
  let ground: ScoringGround;
  let run: ScoringRun;
  let folder: string;
  const path = (name: string) => join(folder, name);

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-same-data-'));
    await writeFile(path('learner.csv'), rows.join('\n'));
    await copyFile(path('learner.csv'), path('copy.csv'));
    await writeFile(path('changed.csv'), rows.join('\n').replace('2 3 4,9', '2 3 4,8'));
    await writeFile(path('reordered.csv'), [rows[0], ...rows.slice(1).reverse()].join('\n'));

    ground = await ScoringGround.prepare();
    run = await ground.begin();
    const dataset = { kind: 'csv', path: path('learner.csv'), seed: 0, testSize: 1 } as const;
    const task = countdownSpec({ dataset });
    const { digest: datasetDigest } = await openTask(task).load();
    await new RunConfigStore(run.broker).put({ ...ground.config, task, datasetDigest });
  });
  after(async () => {
    await run[Symbol.asyncDispose]();
    await ground[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  const start = (service: 'actor' | 'reward-service', file: string) =>
    new ServiceProcess(service, [
      ...['--nats-url', ground.server.url, '--run', 'test', '--name', 'one'],
      ...['--model-dir', ground.model.path, '--dataset-path', path(file)],
    ]);

  for (const file of ['changed.csv', 'reordered.csv']) {
    it(`services refuse to work with ${file} and name both digests`, async () => {
      const { datasetDigest } = (await new RunConfigStore(run.broker).get())!;
      for (const service of ['actor', 'reward-service'] as const) {
        await using process = start(service, file);
        assert.equal(await process.exitCode(), 2, service);
        assert.match(process.errors, new RegExp(`digest [0-9a-f]{64}.*[0-9a-f]{64}`));
        assert(process.errors.includes(datasetDigest));
        assert.match(process.errors, /--dataset-path/);
      }
    });
  }

  it('services refuse to work without the data file', async () => {
    for (const service of ['actor', 'reward-service'] as const) {
      await using process = start(service, 'missing.csv');
      assert.equal(await process.exitCode(), 2, service);
      assert.match(process.errors, /cannot read the problems in .*missing\.csv/);
    }
  });

  it('services join a run with a copy of the data under another path', async () => {
    await using service = start('reward-service', 'copy.csv');
    await service.says(hasJoined);
    assert.equal(await service.stop('SIGTERM'), 0);
  });
});
