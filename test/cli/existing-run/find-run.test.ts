import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { loadEvalConfig } from '../../../cli/eval/eval-config.js';
import { findRun } from '../../../cli/existing-run/find-run.js';
import { UserError } from '../../../shared/base/errors.js';

describe('the run to be evaluated', () => {
  let runs: string;
  const find = (...flags: string[]) =>
    findRun(loadEvalConfig([`--runs-dir=${runs}`, ...flags], {}));

  before(async () => {
    runs = await mkdtemp(join(tmpdir(), 'offbeat-runs-'));
    const launch = {
      run: 'lag-2',
      launcher: {
        ...{ sampler: 'tinker', actors: 2, natsUrl: 'nats://h:4222', modelDir: 'm' },
        loraAlpha: 64,
      },
    };
    await mkdir(join(runs, 'lag-2'));
    await writeFile(join(runs, 'lag-2', 'launch.json'), JSON.stringify(launch));
    const engine = { run: 'engine', launcher: { sampler: 'vllm', engineUrl: 'http://gpu-0:8000' } };
    await mkdir(join(runs, 'engine'));
    await writeFile(join(runs, 'engine', 'launch.json'), JSON.stringify(engine));
    await mkdir(join(runs, 'torn'));
    await writeFile(join(runs, 'torn', 'launch.json'), '{"run"');
  });
  after(() => rm(runs, { recursive: true }));

  it('the run is found with the settings that it was started with, unless a flag overrides them', async () => {
    const { folder, ...found } = await find('--run=lag-2');
    assert.equal(folder?.path, join(runs, 'lag-2'));
    const { sampler, natsUrl, modelDir, backendUrl, loraAlpha } = found;
    assert.deepEqual([sampler, natsUrl, modelDir], ['tinker', 'nats://h:4222', 'm']);
    assert.equal(loraAlpha, 64);
    assert.equal(backendUrl, undefined);
    assert.equal((await find('--run=lag-2', '--sampler=onnx')).sampler, 'onnx');
  });

  it('the servers of an engine are those of the run only while it is evaluated with that engine', async () => {
    const urls = [
      await find('--run=engine'),
      await find('--run=engine', '--sampler=vllm'),
      await find('--run=engine', '--sampler=onnx'),
    ].map(({ engineUrl }) => engineUrl);
    assert.deepEqual(urls, ['http://gpu-0:8000', 'http://gpu-0:8000', undefined]);
  });

  it('a run that does not exist is reported with the nearest existing name', async () => {
    await assert.rejects(find('--run=lag2'), (error) => {
      assert(error instanceof UserError);
      assert.match(error.message, /there is no run lag2 in .*; did you mean lag-2\?/);
      return true;
    });
    await assert.rejects(find('--run=something-else'), /there are engine, lag-2, torn/);
    const nowhere = loadEvalConfig([`--runs-dir=${runs}/none`, '--run=r'], {});
    await assert.rejects(findRun(nowhere), /there are no runs.*needs --nats-url/);
  });

  it('the folder of a learner that was started by itself does not matter if the NATS server is named', async () => {
    await mkdir(join(runs, 'by-itself'));
    const found = await find('--run=by-itself', '--nats-url=nats://h:1');
    assert.deepEqual([found.folder, found.natsUrl], [undefined, 'nats://h:1']);
    await assert.rejects(
      find('--run=by-itself'),
      /launch\.json does not say how the run was started/,
    );
    await rm(join(runs, 'by-itself'), { recursive: true });
  });

  it('keys are refused if the run has no NATS server of the user', async () => {
    await assert.rejects(find('--run=engine', '--nats-keys=keys'), {
      name: 'UserError',
      message: /--nats-keys .*add --nats-url, or remove it/,
    });
    assert.equal((await find('--run=lag-2', '--nats-keys=keys')).natsKeys, 'keys');
  });

  it('the run needs no folder if its NATS server is named', async () => {
    const found = await find('--run=far', '--nats-url=nats://h:1');
    assert.deepEqual(
      [found.folder, found.natsUrl, found.sampler],
      [undefined, 'nats://h:1', 'onnx'],
    );
  });

  it('the run is refused if its folder does not say how it was started', async () => {
    await assert.rejects(find('--run=torn'), /torn\/launch\.json does not say how the run was/);
  });
});

describe('the flags of offbeat eval', () => {
  it('the flags of offbeat eval take the key from the environment', () => {
    assert.equal(loadEvalConfig(['--run=r'], { TINKER_API_KEY: 'tml-k' }).apiKey, 'tml-k');
    assert.equal(loadEvalConfig(['--run=r'], {}).apiKey, undefined);
  });

  it('the flags of offbeat eval are refused with all mistakes at once', () => {
    assert.throws(
      () => loadEvalConfig(['--version=-1', '--samples=0', '--frob'], {}),
      /--frob is not a flag[^]*--run .* is missing[^]*--version .*"-1"[^]*--samples .*"0"/,
    );
  });
});
