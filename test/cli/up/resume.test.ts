import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Launch, resumed } from '../../../cli/up/resume.js';
import { createRunFolder, findRunFolder } from '../../../cli/run-folder.js';
import { loadUpConfig } from '../../../cli/up/load-up-config.js';
import { type UpRequest, usualActorsOfRun } from '../../../cli/up/up-config.js';
import { LearnerConfig } from '../../../learner/config.js';
import { complaintOf } from '../../support/complaint.js';

/** What a run with the shipped model began with, besides what was given. */
const smallSteps = {
  ...{ groupsPerBatch: 16, numMinibatches: 1, evalEveryVersions: 80 },
  ...{ advantage: 'maxrl', maxrlUntil: 0.85 },
};

/** A run that was started with `began`, resumed with `given`. */
function resume(began: string[], given: string[], env: Record<string, string> = {}): UpRequest {
  const start = loadUpConfig(LearnerConfig, ['--run=r', ...began], env);
  const { apiKey: _secret, resume: _resume, json: _json, ...launcher } = start.config;
  const written = JSON.stringify({ run: 'r', launcher, settings: start.settings });
  const request = loadUpConfig(LearnerConfig, ['--run=r', '--resume', ...given], env);
  return resumed(LearnerConfig, request, Launch.parse(JSON.parse(written)), env);
}

const complaint = (...args: Parameters<typeof resume>) => complaintOf(() => resume(...args));

describe('a resumed run', () => {
  it('a resumed run has the settings that it began with', () => {
    const { config, settings } = resume(['--loss=ppo', '--actors=5', '--max-steps=9'], []);
    assert.equal(config.actors, 5);
    assert.deepEqual(settings, {
      ...smallSteps,
      ...{ loss: 'ppo', maxSteps: 9, schedule: 'cosine' },
    });
  });

  it('a resumed run may have another end, other evaluations and another number of actors', () => {
    const given = [
      '--max-steps=20',
      '--actors=1',
      '--eval-problems=8',
      '--checkpoint-every-steps=3',
    ];
    const { config, settings } = resume(['--seed=3', '--max-minutes=2'], given);
    assert.equal(config.actors, 1);
    const changed = { maxSteps: 20, evalProblems: 8, checkpointEverySteps: 3 };
    const kept = { seed: 3, schedule: 'cosine', ...smallSteps };
    assert.deepEqual(settings, { ...kept, ...changed }); // the old limit no longer counts
  });

  it('a resumed run goes on with a key that only its former sampler used', () => {
    const backend = ['--backend-url=http://x', '--api-key=tml-k', '--model-dir=/m'];
    const key = ['--sampler=onnx', '--sampling-api-key=tml-s', '--api-key=tml-k'];
    assert.equal(resume([...backend, '--sampler=tinker'], key).config.sampler, 'onnx');
  });

  it('a resumed run may sample elsewhere, without the engine that it began with', () => {
    const engine = ['--sampler=vllm', '--engine-url=http://gpu-0:8000', '--model-dir=/m'];
    const began = resume(engine, []).config;
    assert.deepEqual([began.engineUrl, began.actors], ['http://gpu-0:8000', 1]);
    const moved = resume(engine, ['--sampler=onnx']).config;
    const actors = usualActorsOfRun({});
    assert.deepEqual([moved.sampler, moved.engineUrl, moved.actors], ['onnx', undefined, actors]);
    const segments = resume([...engine, '--segment-tokens=64'], ['--sampler=onnx']).config;
    assert.equal(segments.segmentTokens, undefined);
    const back = resume([...engine, '--actors=3'], ['--sampler=onnx', '--actors=4']).config;
    assert.equal(back.actors, 4);
    assert.equal(resume(['--actors=5'], ['--sampler=tinker']).config.actors, 5);
  });

  it('a resumed run may have other prices', () => {
    const given = ['--price-trainer-hour=2', '--gpus-trainer=4'];
    const { settings } = resume(['--max-steps=9', '--price-trainer-hour=1'], given);
    assert.deepEqual([settings['priceTrainerHour'], settings['gpusTrainer']], [2, 4]);
  });

  it('a resumed run may wait longer for its last checkpoint, once that took too long', () => {
    const { settings } = resume(['--max-steps=9'], ['--stop-patience-seconds=600']);
    assert.equal(settings['stopPatienceSeconds'], 600);
  });

  it('a resumed run may have settings that do nothing together, which only a new run is refused for', () => {
    assert.equal(resume(['--no-dashboard'], []).config.dashboard, false);
    assert.equal(resume([], ['--no-dashboard']).config.dashboard, false);
    assert.equal(resume(['--eval-actors=1'], ['--eval-problems=0']).config.evalActors, 1);
    const streak = resume(['--zero-variance=train'], ['--stop-zero-variance=50']).settings;
    assert.equal(streak['stopZeroVariance'], 50);
  });

  it('a resumed run accepts its own settings when they are repeated, defaults included', () => {
    assert.deepEqual(resume(['--max-steps=9'], ['--loss=cispo', '--group-size=16']).settings, {
      ...smallSteps,
      ...{ maxSteps: 9, schedule: 'cosine' },
      ...{ loss: 'cispo', groupSize: 16 },
    });
  });

  it('a resumed run refuses, by name and all at once, settings that would make it another run', () => {
    const text = complaint(
      ['--learning-rate=0.01'],
      ['--learning-rate=0.02', '--group-size=4', '--seed=1'],
    );
    assert.match(text, /^the run r cannot be resumed with these settings; leave them out/);
    assert.match(text, /--learning-rate is 0\.02, the run has 0\.01/);
    assert.match(text, /--group-size is 4, the run has 16/);
    assert.match(text, /--seed is 1, the run has 0/);
    const alpha = complaint([], ['--lora-alpha=8']);
    assert.match(alpha, /--lora-alpha is 8, the run has 64/);
    assert.equal(resume(['--lora-alpha=8'], ['--lora-alpha=8']).config.loraAlpha, 8);
  });

  it("a resumed run refuses to replace its own servers, but finds the user's servers at another address", () => {
    const text = complaint([], ['--nats-url=nats://h:1', '--backend-url=http://h:1']);
    assert.match(text, /--nats-url is given, but the run has its own NATS; remove it/);
    assert.match(text, /--backend-url is given, but the run has its own backend; remove it/);
    const began = ['--nats-url=nats://h:1', '--backend-url=http://h:1', '--model-dir=m'];
    const env = { TINKER_API_KEY: 'tml-a' };
    const { config } = resume(began, ['--nats-url=nats://h:2'], env);
    assert.deepEqual([config.natsUrl, config.apiKey], ['nats://h:2', 'tml-a']);
  });

  it('a resumed run is validated as a whole: a key that was never stored must be given again', () => {
    const began = ['--backend-url=http://h:1', '--model-dir=m'];
    const start = loadUpConfig(LearnerConfig, ['--run=r', ...began], { TINKER_API_KEY: 'tml-a' });
    const request = loadUpConfig(LearnerConfig, ['--run=r', '--resume'], {});
    const launch = Launch.parse({ run: 'r', launcher: start.config, settings: start.settings });
    delete launch.launcher['apiKey'];
    assert.throws(() => resumed(LearnerConfig, request, launch, {}), /--api-key .*TINKER_API_KEY/);
  });

  it('a run cannot be resumed without its name', () => {
    assert.throws(
      () => loadUpConfig(LearnerConfig, ['--resume'], {}),
      /--run \(or OFFBEAT_RUN\): --resume needs the name of the run/,
    );
  });
});

describe('the folder of a run', () => {
  let runs: string;
  before(async () => {
    runs = await mkdtemp(join(tmpdir(), 'offbeat-runs-'));
    await mkdir(join(runs, 'lag-2'));
    await writeFile(join(runs, 'lag-2', 'metrics.jsonl'), '{}\n');
    await writeFile(join(runs, 'notes'), '');
  });
  after(() => rm(runs, { recursive: true }));

  it('the folder of a run is used again only if the run is resumed', async () => {
    await assert.rejects(createRunFolder(runs, 'lag-2'), /already exists in .*lag-2; add --resume/);
    assert.equal((await findRunFolder(runs, 'lag-2')).path, join(runs, 'lag-2'));
  });

  it('the folder of a run must exist for the run to be resumed', async () => {
    await assert.rejects(
      findRunFolder(runs, 'lag2'),
      /no run lag2 in .*; did you mean lag-2\? Without --resume a new run begins/,
    );
    await assert.rejects(findRunFolder(`${runs}/none`, 'x'), /there are no runs/);
  });
});
