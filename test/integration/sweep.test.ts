import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { offbeatProgram } from '../../shared/base/package-root.js';
import { sha256 } from '../../shared/base/bytes.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { runOffbeat } from '../support/offbeat.js';
import { processesWith } from '../support/processes.js';

const ofRuns = { groupsPerBatch: 2, groupSize: 8, numMinibatches: 1, actors: 1, testSize: 256 };

/** Two runs of two steps each, for which every process draws few problems. */
const experiment = {
  name: 'tiny',
  title: 'Two ranks',
  settings: { ...ofRuns, trainSize: 512 },
  axes: [{ name: 'rank', setting: 'loraRank', values: [1, 2] }],
  seeds: [3],
  limits: { samples: 32 },
  evaluation: { problems: 6, samples: 2, everySamples: 16 },
  measures: [
    { name: 'solved', from: 'eval', key: 'sampled' },
    { name: 'gradient', from: 'steps', key: 'optim/grad_norm:mean', take: 'variation' },
  ],
  comparisons: [{ measure: 'solved', against: { rank: 1 } }],
  panels: [{ kind: 'curve', title: 'Solved', from: 'eval', key: 'sampled', color: 'rank' }],
};

describe('offbeat sweep', { timeout: 400_000 }, () => {
  let folder: string;
  const out = (...path: string[]) => join(folder, 'sweeps', 'tiny', ...path);
  const write = (over: object) =>
    writeFile(join(folder, 'e.json'), JSON.stringify({ ...experiment, ...over }));

  /** Processes of the sweep, of its runs and of their services. */
  const processes = () => processesWith(folder, 'sweeps/tiny/', '--run=1-s3-', '--run=2-s3-');

  /** Complete result files; each is first written under another name. */
  const finishedRuns = async () =>
    existsSync(out('results'))
      ? (await readdir(out('results'))).filter((name) => name.endsWith('.json'))
      : [];

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-sweep-'));
    await write({});
  });
  after(() => rm(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 }));

  it('offbeat sweep --dry-run lists the runs and starts none', async () => {
    const { code, out: text } = await runOffbeat(['sweep', 'e.json', '--dry-run'], folder);
    assert.equal(code, 0);
    assert.match(
      text,
      /rank 1, seed 3 {2}2 steps of 16 samples\n.*rank 2, seed 3.*\n2 runs, 0 of them done/,
    );
    assert(!existsSync(out()));
  });

  it('a killed sweep leaves no process', async () => {
    const child = spawn(process.execPath, [offbeatProgram, 'sweep', 'e.json'], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let said = '';
    child.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()));
    while ((await finishedRuns()).length === 0 && child.exitCode === null) await sleep(50);
    assert.equal(child.exitCode, null, said);
    child.kill('SIGKILL');
    await once(child, 'close');
    while (processes().length > 0) await sleep(50);
  });

  it('a resumed sweep does not repeat a finished run', async () => {
    const [first] = await finishedRuns();
    const before = await readFile(out('results', first!), 'utf8');
    const { code, out: text, err } = await runOffbeat(['sweep', 'e.json'], folder);
    assert.equal(code, 0, err);
    assert.match(text, /Two ranks: 2 runs, 1 to make/);
    assert.equal(await readFile(out('results', first!), 'utf8'), before);
    assert.equal((await finishedRuns()).length, 2);
    assert.deepEqual(processes(), []);

    assert.match(
      text,
      /\| rank \| runs \| solved .*\| gradient .*\n.*\n\| 1 +\| 1 .*\n\| 2 +\| 1 /,
    );
    assert.match(text, /\| 2 +\| rank 1 +\| 1 +\| [+−]/);
    assert.match(await readFile(out('report.html'), 'utf8'), /<h1>Two ranks<\/h1>/);
    assert.match(await readFile(out('plot.svg'), 'utf8'), /<polyline /);
    assert(!text.includes('no result yet'));
  });

  it('offbeat sweep --report makes the report from the results alone', async () => {
    await rm(out('report.md'));
    const { code, out: text } = await runOffbeat(['sweep', 'e.json', '--report'], folder);
    assert.equal(code, 0);
    assert.match(text, /2 of 2 runs with seeds 3/);
    assert(existsSync(out('report.md')));
  });

  it('a sweep publishes its results, deletes those that are no longer planned, and says so', async () => {
    const words = ['sweep', 'e.json', '--report', '--publish=p'];
    await runOffbeat(words, folder);
    const published = () => readdir(join(folder, 'p'));
    assert.equal((await published()).length, 2);
    await write({ axes: [{ name: 'rank', setting: 'loraRank', values: [1] }] });
    const { out: text } = await runOffbeat(words, folder);
    assert.match(text, /deleted from p, no longer of the plan: 2-s3-[0-9a-f]{6}\n/);
    assert.match((await published()).join(' '), /^1-s3-[0-9a-f]{6}\.json\.gz$/);
    await write({});
    const short = await runOffbeat(['sweep', 'e.json', '--short', '--publish=p'], folder);
    assert.match(short.err, /--short makes other runs, .*; remove --publish/);
  });

  it('a sweep repeats a run whose model has changed', async () => {
    const path = out('results', (await finishedRuns())[0]!);
    const result = await readFile(path, 'utf8');
    await writeFile(path, result.replace(/"modelDigest":"[0-9a-f]{64}"/, '"modelDigest":"a0b1"'));
    const { out: text } = await runOffbeat(['sweep', 'e.json', '--dry-run'], folder);
    assert.match(text, /the model is another one now\n2 runs, 1 of them done/);
    await writeFile(path, result);
  });

  it('a sweep repeats a run to which another default applied, and says so', async () => {
    const path = out('results', (await finishedRuns())[0]!);
    const result = await readFile(path, 'utf8');
    await writeFile(path, result.replaceAll('"learningRate":0.002', '"learningRate":0.5'));
    const { out: text } = await runOffbeat(['sweep', 'e.json', '--dry-run'], folder);
    const why = /1-s3-.*: adam\.learningRate of the run was 0\.5 and is 0\.002 now\n/;
    assert.match(text, new RegExp(`${why.source}2 runs, 1 `));
    const { out: report } = await runOffbeat(['sweep', 'e.json', '--report'], folder);
    assert.match(report, why);
    assert.doesNotMatch(report, /1 of 2 runs/);
    await writeFile(path, result);
  });

  it('a sweep refuses to take settings of its runs from the environment', async () => {
    const env = { LEARNER_LORA_RANK: '4', ACTOR_THREADS: '2' };
    const { code, err } = await runOffbeat(['sweep', 'e.json', '--dry-run'], folder, env);
    assert.equal(code, 2);
    assert.match(
      err,
      /LEARNER_LORA_RANK is "4": put "loraRank" into .*\n.*ACTOR_THREADS is "2": unset/,
    );
  });

  it('a sweep repeats a run whose file of problems has changed, but not one whose file is gone', async () => {
    const problems = join(folder, 'problems.jsonl');
    await write({ settings: { ...ofRuns, dataset: 'problems.jsonl' } });
    const plan = async () => (await runOffbeat(['sweep', 'e.json', '--dry-run'], folder)).out;
    const name = /1-s3-[0-9a-f]{6}/.exec(await plan())![0];
    const result = await readFile(out('results', (await finishedRuns())[0]!), 'utf8');
    await writeFile(problems, 'one');
    const { applied, ...rest } = JSON.parse(result) as { applied: Record<string, RunConfig> };
    const { trainSize: _ofGenerated, ...ofLearner } = { ...applied['learner'] } as object & {
      trainSize?: number;
    };
    const learner = { ...ofLearner, dataset: 'problems.jsonl' };
    const { task, ...ofRun } = applied['the run']!;
    const dataset = { kind: 'jsonl', path: 'problems.jsonl', seed: 0, testSize: 256 };
    const run = { ...ofRun, task: { ...task, dataset } };
    const dataDigest = sha256('one');
    const kept = { ...rest, name, dataDigest, applied: { ...applied, learner, 'the run': run } };
    await writeFile(out('results', `${name}.json`), JSON.stringify(kept));
    assert.match(await plan(), /2 runs, 1 of them done/);
    await writeFile(problems, 'another');
    assert.match(await plan(), /2 runs, 0 of them done/);
    await rm(problems);
    assert.match(await plan(), /2 runs, 1 of them done/);
  });

  it('a sweep names a failed run and the reason, and fails', async () => {
    await write({ settings: { ...ofRuns, dataset: 'nowhere.jsonl' }, seeds: [4] });
    const { code, err } = await runOffbeat(['sweep', 'e.json'], folder);
    assert.equal(code, 1);
    assert.match(err, /1-s4-[0-9a-f]{6}: up ended with code 2:[^]*nowhere\.jsonl/);
  });

  it('a sweep refuses invalid settings before it starts a run', async () => {
    await write({ settings: { groupSize: 1 } });
    const { code, err } = await runOffbeat(['sweep', 'e.json'], folder);
    assert.equal(code, 2);
    assert.match(err, /--group-size .* is "1"/);
    const missing = await runOffbeat(['sweep', '--short'], folder);
    assert.equal(missing.code, 2);
    assert.match(missing.err, /the first word is the file of the experiment, not --short/);
  });
});
