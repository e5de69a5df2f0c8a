import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  checkPublishFolder,
  publishedResults,
  publishResult,
  publishResults,
  readRunFolder,
  Results,
} from '../../../tools/sweep/results.js';
import { columnsOf } from '../../../tools/sweep/sweep-file.js';
import { evalResult } from '../../support/messages.js';
import { runResult, sweepOf } from './values.js';

describe('the results of an experiment', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-results-'));
  });
  after(() => rm(folder, { recursive: true }));

  it('the results of an experiment are kept in one file per run', async () => {
    const results = new Results(join(folder, 'kept'));
    const result = runResult({ lag: '0' }, 1, [0, 1, 2, 2]);
    assert.equal(await results.read(result), undefined);
    await results.write(result);
    assert.deepEqual(await results.read(result), result);
  });

  it('the published results of an experiment are the same, but for columns that it does not use', async () => {
    const published = join(folder, 'published');
    const result = runResult({ lag: '0' }, 1, [0, 1, 2, 2]);
    const steps = [{ step: 1, entropy: 0.5, other: 3 }];
    await publishResult(published, { ...result, steps }, columnsOf(sweepOf()));
    assert.deepEqual(await publishedResults(published), [
      { ...result, steps: [{ step: 1, entropy: 0.5 }] },
    ]);
  });

  it('publishing deletes the results of runs that are no longer planned once every planned run has one', async () => {
    const published = join(folder, 'deleting');
    const [of0, of4, gone] = ['0', '4', '9'].map((lag) => runResult({ lag }, 1, [1, 2]));
    const columns = columnsOf(sweepOf());
    for (const result of [of4!, gone!]) await publishResult(published, result, columns);
    await writeFile(join(published, 'notes.txt'), 'kept');
    const planned = [of0!, of4!];
    const done = new Map([[of0!.name, of0!]]);
    assert.deepEqual(await publishResults(published, planned, done, columns), {
      deleted: [],
      left: [of4!.name, gone!.name],
    });
    done.set(of4!.name, of4!);
    assert.deepEqual(await publishResults(published, planned, done, columns), {
      deleted: [gone!.name],
      left: [],
    });
    const files = ['0-s1.json.gz', '4-s1.json.gz', 'notes.txt'];
    assert.deepEqual((await readdir(published)).sort(), files);
  });

  it('a folder with the results of another experiment is refused with the remedy', async () => {
    const columns = columnsOf(sweepOf());
    const words = (name: string) => ({
      name: 'UserError',
      message: new RegExp(`has a result that is not of mine: ${name}; name another folder`),
    });
    const planned = [{ choice: { arm: 'synchronous' } }, { choice: { arm: 'RL' } }];
    const published = join(folder, 'named');
    await publishResult(
      published,
      { ...runResult({ arm: 'RL' }, 1, [1]), experiment: 'mine' },
      columns,
    );
    await checkPublishFolder(published, 'mine', planned);
    await checkPublishFolder(published, 'mine', planned.slice(0, 1)); // an arm that is no longer of the plan
    await publishResult(
      published,
      { ...runResult({ arm: 'RL' }, 2, [1]), experiment: 'yours' },
      columns,
    );
    await assert.rejects(checkPublishFolder(published, 'mine', planned), words('RL-s2'));

    const older = join(folder, 'unnamed');
    await publishResult(older, runResult({ arm: 'RL' }, 1, [1]), columns);
    await checkPublishFolder(older, 'mine', planned);
    await publishResult(older, runResult({ arm: 'maxrl' }, 1, [1]), columns);
    await assert.rejects(checkPublishFolder(older, 'mine', planned), words('maxrl-s1'));
  });

  it('a damaged published result is named', async () => {
    const damaged = join(folder, 'damaged');
    await publishResult(damaged, runResult({ arm: 'RL' }, 1, [1]), new Set());
    const [name] = await readdir(damaged);
    const path = join(damaged, name!);
    await writeFile(path, (await readFile(path)).subarray(0, 40));
    await assert.rejects(publishedResults(damaged), {
      name: 'UserError',
      message: /RL-s1\.json\.gz is damaged, .* publish again/,
    });
  });

  it('the results of another version are refused with the remedy', async () => {
    await writeFile(join(folder, 'old.json'), '{"v":1}');
    const results = new Results(folder);
    await assert.rejects(
      results.read({ name: 'old' }),
      /old\.json is not a result .*delete it to repeat/,
    );
  });

  it('the results of an experiment are read from the folder of the run', async () => {
    const run = join(folder, 'run');
    await mkdir(run);
    const { answers } = evalResult();
    const line = { time: '2026-01-01T00:00:00.000Z', ...evalResult({ version: 4, answers }) };
    await writeFile(join(run, 'evals.jsonl'), `${JSON.stringify(line)}\n`);
    const step = { step: 1, version: 1, time: '2026-01-01T00:00:00.000Z', entropy: 0.5 };
    await writeFile(join(run, 'metrics.jsonl'), `${JSON.stringify(step)}\n`);
    await writeFile(join(run, 'summary.json'), '{"reason":"max_steps","steps":1}');
    await writeFile(join(run, 'config.json'), '{"run":"r","model":{"name":"m","digest":"a0b1"}}');
    const { modelDigest, reason, evals, steps } = await readRunFolder(run);
    assert.equal(modelDigest, 'a0b1');
    assert.equal(reason, 'max_steps');
    assert.deepEqual(evals, [evalResult({ version: 4 })]);
    assert.deepEqual(steps, [{ step: 1, version: 1, entropy: 0.5 }]);
  });
});
