import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { findExecutables, searchFolders } from '../../cli/nats-server/binary.js';
import { accessWith } from '../../cli/nats-server/keys.js';
import { startNats } from '../../cli/nats-server/start.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { environmentName } from '../../shared/service/config.js';
import { openTask, TaskSettings, taskSpec } from '../../shared/tasks/registry.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import { silent } from '../support/log.js';
import { runOffbeat } from '../support/offbeat.js';
import { UpProcess } from '../support/up-process.js';
import { never } from '../support/waiting.js';

const small = (
  '--groups-per-batch=2 --group-size=8 --num-minibatches=1 --lora-rank=2 --lora-alpha=8 ' +
  '--window-policy=tokens --train-size=512 --eval-samples=2 --actors=1'
).split(' ');

describe('offbeat eval', { timeout: 300_000 }, () => {
  let up: UpProcess;
  let evals: EvalResult[]; // by the run itself, of versions 0 and 3
  const evaluate = (...flags: string[]) => {
    const same = [`--run=${up.run}`, '--samples=2', '--actors=1', '--json'];
    const isOwnChoice = flags.some((flag) => flag.startsWith('--problems='));
    return runOffbeat(
      ['eval', ...same, ...(isOwnChoice ? [] : ['--problems=6']), ...flags],
      up.folder,
    );
  };

  before(async () => {
    up = await UpProcess.start([...small, '--eval-problems=6', '--max-steps=3', '--json']);
    assert.equal(await up.ended(), 0, up.err);
    const lines = (await up.read('evals.jsonl')).trimEnd().split('\n');
    evals = lines.map((line) => JSON.parse(line) as EvalResult);
    await keepNewestAlone(up);
  });
  after(() => up[Symbol.asyncDispose]());

  it('offbeat eval scores the newest version of a finished run as the run itself did', async () => {
    const { code, out, err } = await evaluate();
    assert.equal(code, 0, err);
    const result = JSON.parse(out) as EvalResult;
    assert.deepEqual([result.version, evals.at(-1)!.version], [3, 3]);
    assert.deepEqual(result.answers, evals.at(-1)!.answers);
    assert.deepEqual(up.processes(), []);
  });

  it('offbeat eval restores a version that is only saved and samples it by the backend', async () => {
    const { code, out, err } = await evaluate('--version=0', '--sampler=tinker');
    assert.equal(code, 0, err);
    const result = JSON.parse(out) as EvalResult;
    assert.deepEqual([result.version, result.problems], [0, 6]);
    // Greedy answers do not depend on the sampler; sampled ones do.
    assert.deepEqual(result.answers.greedy, evals[0]!.answers.greedy);
  });

  it('offbeat eval needs no canary, even where the environment makes actors require one', async () => {
    const { code, out, err } = await runOffbeat(
      ['eval', `--run=${up.run}`, '--samples=1', '--actors=1', '--json', '--problems=2'],
      up.folder,
      { [environmentName('actor', 'requireCanary')]: 'true' },
    );
    assert.equal(code, 0, err);
    assert.equal((JSON.parse(out) as EvalResult).problems, 2);
  });

  it('offbeat eval scores the best version, which every finished run has', async () => {
    const { code, out, err } = await evaluate('--version=best');
    assert.equal(code, 0, err);
    const best = evals.reduce((a, b) => (b.sampled >= a.sampled ? b : a)).version;
    assert.equal((JSON.parse(out.trimEnd().split('\n').at(-1)!) as EvalResult).version, best);
  });

  it('offbeat eval measures at another temperature and on other problems if asked', async () => {
    const { code, out, err } = await evaluate(
      ...['--temperature=0.25', '--numbers=3,4', '--max-target=50', '--test-size=40'],
    );
    assert.equal(code, 0, err);
    const result = JSON.parse(out) as EvalResult;
    assert.equal(result.temperature, 0.25);
    const difficulties = result.byDifficulty.map(({ difficulty }) => difficulty);
    assert.deepEqual(difficulties.sort(), ['3 numbers', '4 numbers']);
  });

  it('offbeat eval leaves out the first held-out problems if asked', async () => {
    const { code, out, err } = await evaluate('--version=0', '--skip-problems=2', '--problems=4');
    assert.equal(code, 0, err);
    const result = JSON.parse(out) as EvalResult;
    assert.deepEqual(result.answers.greedy.correct, evals[0]!.answers.greedy.correct.slice(2));
    const beyond = await evaluate('--skip-problems=252');
    assert.equal(beyond.code, 2);
    assert.doesNotMatch(beyond.err, /logs/);
    assert.match(
      beyond.err,
      /--skip-problems 252 and --problems 6 need 258 held-out problems, but there are 256/,
    );
  });

  it('offbeat eval reports why no answer came, and keeps its logs', async () => {
    // Problems of 6 large numbers do not fit into the context of the model, those of 3 do.
    const large = { numbers: '3,6', maxNumber: 9_999_999, maxTarget: 9_999_999 };
    const spec = await taskSpec(TaskSettings.parse({ task: 'countdown', ...large }));
    const { test } = await openTask(spec).load();
    const tooLong = test.findIndex(({ difficulty }) => difficulty === '6 numbers');
    const { code, err } = await evaluate(
      ...['--numbers=3,6', '--max-number=9999999', '--max-target=9999999'],
      ...['--problems=1', `--skip-problems=${tooLong}`],
    );
    assert.equal(code, 2, err);
    assert.match(err, /version 3 failed: all of its sampled .* died, 2 of 2:$/m);
    assert.match(err, /^ {2}- actor: ticket eval-3-0-\S+ needs \d+ tokens .* has room for 64/m);
    const folder = /the logs of this evaluation are in (\S+)$/m.exec(err)![1]!;
    assert.match(await readFile(join(folder, 'measure-0.log'), 'utf8'), /message given up/);
    assert(!existsSync(join(folder, 'checkpoints')));
    await rm(folder, { recursive: true });
  });

  it('offbeat eval refuses problems that contradict each other', async () => {
    const { code, err } = await evaluate('--min-target=9', '--max-target=5');
    assert.equal(code, 2);
    assert.match(err, /--min-target: it exceeds --max-target/);
  });

  it('offbeat eval lists the existing versions when asked for another', async () => {
    const { code, err } = await evaluate('--version=7');
    assert.equal(code, 2);
    assert.match(
      err,
      /version 7 of run .* was deleted or never existed; there are 0, 3\. --version best/,
    );
  });
});

describe('offbeat eval beside a run that trains', { timeout: 300_000 }, () => {
  it('offbeat eval scores a version without disturbing a training run', async () => {
    await using up = await UpProcess.start([...small, '--eval-problems=0', '--max-minutes=30']);
    await up.says(/step \d/);
    const flags = [`--run=${up.run}`, '--problems=4', '--samples=1', '--actors=1'];
    const { code, out, err } = await runOffbeat(['eval', ...flags], up.folder);
    assert.equal(code, 0, err);
    assert.match(out, /run .*, version \d+ \(step \d+\)\n +problems +sampled +greedy\nall +4 /);
    up.child.kill('SIGINT');
    assert.equal(await up.ended(), 130, up.err);
    assert.match(await up.read('summary.json'), /"reason": "stopped"/);
  });
});

/** Retires the versions before the last, as a longer run does; actors name old ones for a while. */
async function keepNewestAlone(up: UpProcess): Promise<void> {
  const [binary] = await findExecutables('nats-server', searchFolders(process.env['PATH']));
  const file = process.env['OFFBEAT_NATS_SERVER'] ?? binary!;
  const identity = { role: 'operator' } as const;
  const limits = { run: up.run, identities: [identity], deadlineMs: 20_000, signal: never };
  const nats = await startNats(file, up.path('nats'), up.path('logs/nats-server.log'), limits);
  try {
    await using broker = await connectBroker({
      natsUrl: nats.url,
      ...accessWith(nats.keyFolder, identity),
      ...{ run: up.run, client: 'test', identity, log: silent, signal: never },
    });
    await broker.policy.retire(new Set([3]));
  } finally {
    await nats.process.stop(10_000, never);
  }
}
