import assert from 'node:assert/strict';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { readModelDirectory } from '../../shared/model/model-directory.js';
import { openTask } from '../../shared/tasks/registry.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { loadJudge } from '../../reward-service/judge.js';
import { countdownSpec } from '../support/countdown-task.js';
import { runConfig } from '../support/messages.js';
import { tinyModel } from '../support/tiny-model.js';

describe('loading the judge of a run', () => {
  let model: Awaited<ReturnType<typeof tinyModel>>;
  let run: RunConfig;
  before(async () => {
    model = await tinyModel();
    const config = runConfig();
    run = {
      ...config,
      model: { name: 'tiny', digest: model.digest },
      datasetDigest: (await openTask(config.task).load()).digest,
    };
  });
  after(() => model[Symbol.asyncDispose]());
  const load = (changed: Partial<RunConfig> = {}, datasetPath?: string) =>
    loadJudge({ ...run, ...changed }, { modelDir: model.path, datasetPath });

  it('the judge is loaded with the data and the model that the run names', async () => {
    const { test } = await openTask(run.task).load();
    const judge = await load();
    assert.equal(judge.problem(test[0]!.id)?.id, test[0]!.id);
  });

  it('the judge is not loaded with problems other than those of the run', async () => {
    await assert.rejects(load({ datasetDigest: '0'.repeat(64) }), {
      name: 'UserError',
      message: /the problems here have the digest [0-9a-f]{64}, those of run .* 0{64}/,
    });
  });

  it('the judge is not loaded with a model other than that of the run', async () => {
    await assert.rejects(load({ model: { name: 'other', digest: '1'.repeat(64) } }), {
      name: 'UserError',
      message: /has the digest [0-9a-f]{64}, that of run .*\(other\) 1{64}; .*--model-dir/,
    });
  });

  it('the judge is loaded with a model that has got a chat template since the run began, and not without one that the run has', async () => {
    const template = join(model.path, 'chat_template.jinja');
    await writeFile(template, '{{ messages }}');
    const { digest } = await readModelDirectory(model.path);
    await load(); // as before digests covered templates
    await rm(template);
    await assert.rejects(load({ model: { name: 'tiny', digest } }), /the chat template/);
  });

  it("the judge reads the run's data from a local path", async () => {
    const here = join(model.path, 'problems.jsonl');
    await writeFile(here, '{"nums":[1,2],"target":3}\n{"nums":[3,4],"target":7}\n');
    const at = (path: string) =>
      countdownSpec({ dataset: { kind: 'jsonl', path, seed: 0, testSize: 1 } });
    const { digest: datasetDigest } = await openTask(at(here)).load();
    const elsewhere = { task: at(join(model.path, 'missing.jsonl')), datasetDigest };
    const judge = await load(elsewhere, here);
    assert.equal(judge.problem('3,4=7')?.id, '3,4=7');
    await assert.rejects(load(elsewhere), /missing\.jsonl/);
  });
});
