import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { openTask } from '../../shared/tasks/registry.js';
import { runOffbeat } from '../support/offbeat.js';
import { UpProcess } from '../support/up-process.js';
import { until } from '../support/waiting.js';

describe('offbeat sft', { timeout: 480_000 }, () => {
  const few = '--actors=1 --eval-problems=4 --eval-samples=1 --train-size=480'.split(' ');
  const small = ['--lora-rank=2', ...few];
  const onExamples = ['--batch-examples=8', '--held-out-examples=8', '--checkpoint-every-steps=2'];
  const onRollouts = ['--groups-per-batch=2', '--group-size=8', '--num-minibatches=1'];

  it('a run on examples goes on after its learner was killed, and reinforcement learning starts from its weights', async () => {
    const flags = [...small, ...onExamples];
    await using up = await UpProcess.start(
      [...flags, '--keep-every-steps=25', '--json'],
      undefined,
      {},
      'sft',
    );
    await until(async () => (await linesOf(up)) >= 3);
    process.kill(up.pidOf('cli.js learner'), 'SIGKILL');
    assert.equal(await up.ended(), 0, up.err);
    assert.deepEqual(up.processes(), []);
    const summary = Summary.parse(JSON.parse(up.out));
    assert.deepEqual([summary.steps, summary.supervised?.epochs], [60, 1]);
    assert.equal(summary.eval?.problems, 4);
    assert.equal(await linesOf(up), 60);
    const tokens = { ...summary.cost?.tokens };
    assert.equal(tokens.examples, await examplesTokens(up), 'each step is counted once');
    assert.match(up.err, /learner was killed by SIGKILL; starting it again/);

    const { code, err } = await runOffbeat(['report', `--run=${up.run}`], up.folder);
    assert.equal(code, 0, err);
    const report = await up.read('report.html');
    assert.match(report, /on examples \(solver\), cross_entropy, 8 examples a step/);
    assert.match(report, /id="plot-nll"/);
    assert.doesNotMatch(report, /id="plot-staleness"/);

    const place = { folder: up.folder, run: `${up.run}-rl` }; // its processes are found by this name, also beside another test run
    const from = [...small, ...onRollouts, `--from=${up.run}@60`, '--max-steps=1', '--json'];
    await using rl = await UpProcess.start(from, place);
    assert.equal(await rl.ended(), 0, rl.err);
    assert.match(rl.err, new RegExp(`starts from the weights of ${up.run}@60`));
    const trained = Summary.parse(JSON.parse(rl.out));
    assert.deepEqual([trained.steps, trained.from], [1, `${up.run}@60`]);
    // The same weights answer the same held-out problems with the same seeds.
    assert.deepEqual(trained.eval?.before, summary.eval.after);
    const copied = await readdir(rl.path(`checkpoints/from-${up.run}/weights`));
    assert.deepEqual(copied, ['step-000060']);

    await using more = await UpProcess.start(['--resume', '--max-steps=2', '--json'], place);
    assert.equal(await more.ended(), 0, more.err);
    const resumed = Summary.parse(JSON.parse(more.out));
    assert.deepEqual([resumed.steps, resumed.from], [2, `${up.run}@60`]);

    const refusals: [flags: string[], says: RegExp][] = [
      [
        [`--from=${up.run}@7`, '--lora-rank=2'],
        /keeps the states of steps .*25, .*60; .*--keep-every-steps/,
      ],
      [['--from=nothing'], /there is no run nothing in runs/],
      [[`--from=${up.run}`, '--lora-rank=4'], /rank 2, not 4: add --lora-rank 2/],
      [
        [`--from=${up.run}`, '--lora-rank=2', '--lora-alpha=1'],
        /alpha 4, not 1: add --lora-alpha 4/,
      ],
    ];
    for (const [flags, says] of refusals) {
      const args = ['up', '--run=refused', ...few, ...onRollouts, ...flags];
      const { code, err } = await runOffbeat(args, up.folder);
      assert.deepEqual([code, says.test(err)], [2, true], err);
    }
    assert.deepEqual((await readdir(`${up.folder}/runs`)).sort(), [place.run, up.run].sort());

    // A start without a NATS server ends after the check of the data.
    const { task } = RunConfig.parse(JSON.parse(await up.read('config.json')));
    const { train } = await openTask(task).load();
    const rows = train.slice(0, 6).map(({ id }) => {
      const [nums, target] = id.split('=') as [string, string];
      return JSON.stringify({ nums: nums.split(',').map(Number), target: Number(target) });
    });
    await writeFile(join(up.folder, 'seen.jsonl'), rows.join('\n'));
    const seen = ['--dataset=seen.jsonl', '--test-size=4', '--eval-problems=4', '--json'];
    const args = ['up', '--run=seen', ...onRollouts, ...seen, `--from=${up.run}`, '--lora-rank=2'];
    const without = await runOffbeat(args, up.folder, { OFFBEAT_NATS_SERVER: '/bin/false' });
    assert.match(
      without.err,
      new RegExp(`${up.run}@60 was trained on 4 of the 4 held-out problems`),
    );
  });

  it('a run on examples without evaluations needs neither actors nor a reward service', async () => {
    const flags = [
      '--eval-problems=0',
      '--max-steps=2',
      '--train-size=32',
      '--lora-rank=2',
      '--price-trained-tokens=1e6',
      '--max-tokens=9',
      '--json',
    ];
    await using up = await UpProcess.start([...flags, ...onExamples], undefined, {}, 'sft');
    assert.equal(await up.ended(), 0, up.err);
    assert.match(
      up.err,
      /left out of training among the first 32 problems: \d+ whose solution is longer than --max-tokens 9$/m,
    );
    const { steps, cost } = Summary.parse(JSON.parse(up.out));
    assert.deepEqual([steps, cost?.money?.['trained']], [2, await examplesTokens(up)]);
    assert.deepEqual((await readdir(up.path('logs'))).sort(), [
      'learner.log',
      'local-backend.log',
      'nats-server.log',
      'up.log',
    ]);
  });

  it('a run on a file says which of its lines ask held-out questions, and a file without others is refused', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-sft-'));
    const write = async (name: string, rows: readonly object[]) => {
      const path = join(folder, name);
      await writeFile(path, rows.map((row) => JSON.stringify(row)).join('\n'));
      return path;
    };
    const [asked, other] = [
      { nums: [3, 7, 21], target: 84 },
      { nums: [1, 2], target: 3 },
    ];
    const dataset = await write('problems.jsonl', [asked, other]);
    const leaked = { prompt: '21 3 7=84:', answer: '21*(7-3)' };
    const [same, chat] = [
      { prompt: '1 2=3:', answer: '1+2' },
      { prompt: '1+2=', answer: '3' },
    ];
    const run = async (rows: readonly object[]) => {
      const data = await write('examples.jsonl', rows);
      const flags = [
        `--data=${data}`,
        `--dataset=${dataset}`,
        '--test-size=1',
        '--eval-problems=0',
      ];
      const more = ['--epochs=1', '--lora-rank=2', '--held-out-examples=0', '--json'];
      await using up = await UpProcess.start([...flags, ...more], undefined, {}, 'sft');
      return { code: await up.ended(), err: up.err, out: up.out };
    };
    const { code, err, out } = await run([leaked, same, same, chat]);
    assert.equal(code, 0, err);
    assert.match(
      err,
      /left out .* among the 4 examples: 1 with the question of a held-out problem$/m,
    );
    assert.match(err, /1 of the 4 examples are compared .* only by their exact text/);
    const { supervised } = Summary.parse(JSON.parse(out));
    assert.deepEqual([supervised?.examples, supervised?.leftOut], [3, 1]);
    const refused = await run([leaked, leaked]);
    assert.equal(refused.code, 2);
    assert.match(
      refused.err,
      /--data .*examples\.jsonl: each of the 2 examples to train on asks what a held-out/,
    );
    await rm(folder, { recursive: true });
  });

  it('offbeat sft refuses settings of reinforcement learning and wrong examples before it starts', async () => {
    await using up = await UpProcess.start(['--loss=ppo'], undefined, {}, 'sft');
    assert.equal(await up.ended(), 2);
    assert.match(up.err, /--loss/);
    await using missing = await UpProcess.start(['--data=no.jsonl'], undefined, {}, 'sft');
    assert.equal(await missing.ended(), 2);
    assert.match(missing.err, /cannot read .* in no\.jsonl/);
    await using long = await UpProcess.start(['--max-tokens=5'], undefined, {}, 'sft');
    assert.equal(await long.ended(), 2);
    assert.match(
      long.err,
      /1024 whose solution is longer than --max-tokens 5; .*raise --max-tokens/,
    );
  });
});

/** Tokens of the examples in the metrics of a run, prompts included. */
async function examplesTokens(up: UpProcess): Promise<number> {
  const lines = (await up.read('metrics.jsonl')).trimEnd().split('\n');
  return lines
    .map((line) => JSON.parse(line) as Record<string, number>)
    .reduce((sum, step) => sum + step['sft/tokens']! + step['sft/prompt_tokens']!, 0);
}

/** Steps in the metrics of a run. */
async function linesOf(up: UpProcess): Promise<number> {
  const text = await up.read('metrics.jsonl').catch(() => '');
  return text.split('\n').length - 1;
}
