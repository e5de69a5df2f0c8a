import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Summary } from '../../cli/up/summary.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { executable, serverText } from '../cli/nats-server/fakes.js';
import { runOffbeat } from '../support/offbeat.js';
import { UpProcess } from '../support/up-process.js';

describe('offbeat up', { timeout: 480_000 }, () => {
  // The embedded model, so that groups have variance; steps take a second.
  const small =
    '--groups-per-batch=2 --group-size=8 --num-minibatches=1 --lora-rank=2 --train-size=512 --eval-problems=4 --eval-samples=1'.split(
      ' ',
    );
  const lone = [...small, '--actors=1'];

  it('offbeat up trains, survives the death of an actor, prints one line of JSON and leaves no process', async () => {
    const flags = ['--max-steps=6', '--lease-seconds=5', '--json', '--actors=2'];
    await using up = await UpProcess.start([...small, ...flags]);
    await up.says(/5 services are ready/);
    process.kill(up.pidOf('cli.js actor', '--name=actor-0'), 'SIGKILL');
    assert.equal(await up.ended(), 0, up.err);
    assert.deepEqual(up.processes(), []);
    assert.match(up.err, /actor-0 was killed by SIGKILL; starting it again in 1 s \(1 of 5\)/);

    const [line, ...more] = up.out.trimEnd().split('\n');
    assert.deepEqual(more, []);
    const summary = Summary.parse(JSON.parse(line!));
    assert.deepEqual([summary.run, summary.steps, summary.version], [up.run, 6, 6]);
    assert(summary.groups.trained >= 12);
    assert.equal(summary.eval?.problems, 4);

    const services = [
      'actor-0',
      'actor-1',
      'learner',
      'local-backend',
      'nats-server',
      'reward-service',
      'up',
    ];
    assert.deepEqual(
      (await readdir(up.path('logs'))).sort(),
      services.map((name) => `${name}.log`),
    );
    const steps = (await up.read('metrics.jsonl')).trimEnd().split('\n');
    assert.deepEqual(
      steps.map((text) => (JSON.parse(text) as { step: number }).step),
      [1, 2, 3, 4, 5, 6],
    );
    assert(existsSync(up.path('config.json')) && existsSync(up.path('launch.json')));
    assert((await readdir(up.path('checkpoints'))).length > 0);
  });

  it('offbeat up serves a page and at Ctrl-C saves a checkpoint, prints a summary and leaves no process', async () => {
    await using up = await UpProcess.start([...lone, '--max-minutes=30']);
    await up.says(/step \d/);
    const [, address] = /dashboard at (\S+)/.exec(up.out)!;
    const page = await fetch(address!).then((response) => response.text());
    assert.match(page, /training<\/span><\/h1>[^]*mean of all answers[^]*The learner issues/);
    assert.match(page, /<th scope="row">actor-0<\/th>[^]*class="answer" aria-label="Answer 8"/);
    up.child.kill('SIGINT');
    up.child.kill('SIGINT'); // npm forwards the signal that the terminal has already sent
    assert.equal(await up.ended(), 130, up.err);
    assert.deepEqual(up.processes(), []);
    assert.match(up.out, /stopping: the learner saves a checkpoint[^]*stopped:\n +steps/);
    assert.equal(
      (JSON.parse(await up.read('summary.json')) as { reason: string }).reason,
      'stopped',
    );
    const { code, out, err } = await runOffbeat(['report', `--run=${up.run}`], up.folder);
    assert.equal(code, 0, err);
    assert.equal(out, `${up.path('report.html')}\n`);
    assert.match(
      await up.read('report.html'),
      /over: stopped<\/span>[^]*id="plot-reward"[^]*class="answer"/,
    );
  });

  it('a killed offbeat up leaves no process', async () => {
    await using up = await UpProcess.start([...lone, '--max-minutes=30']);
    await up.says(/services are ready/);
    assert(up.processes().length >= 6);
    up.child.kill('SIGKILL');
    assert.equal(await up.ended(), 'SIGKILL');
    while (up.processes().length > 0) await sleep(100);
  });

  it('offbeat up continues with balanced ticket counts whichever of its processes is killed', async () => {
    const flags = ['--max-minutes=30', '--lease-seconds=5', '--json'];
    await using up = await UpProcess.start([...lone, ...flags]);
    // nats-server itself is a child of the shell that ties it to the launcher.
    for (const [name, ...words] of [
      ['learner', 'cli.js learner'],
      ['local-backend', 'cli.js local-backend'],
      ['nats-server', 'nats-server.conf'],
    ] as const) {
      await up.trainsOn();
      process.kill(up.pidOf(...words), 'SIGKILL');
      await up.says(new RegExp(`${name} (was killed by SIGKILL|ended with code 137); starting it`));
    }
    await up.trainsOn();
    up.pidOf('cli.js learner', '--max-minutes=29.'); // of 30, the second learner has what the first has left
    up.child.kill('SIGINT');
    assert.equal(await up.ended(), 130, up.err);
    assert.deepEqual(up.processes(), []);
    const { groups, steps } = Summary.parse(JSON.parse(up.out));
    assert.equal(groups.trained, 2 * steps);
    const { trained, skippedZeroVariance, stale, dead, outstanding } = groups;
    assert.equal(groups.issued, trained + skippedZeroVariance + stale + dead + outstanding);
  });

  it('offbeat up that is stopped while nats-server hangs starts it again, and saves the run', async () => {
    await using up = await UpProcess.start([...lone, '--max-minutes=30']);
    await up.trainsOn();
    const hanging = up
      .processes()
      .find((pid) => readFileSync(`/proc/${pid}/comm`, 'utf8') === 'nats-server\n');
    process.kill(hanging!, 'SIGSTOP');
    up.child.kill('SIGINT');
    assert.equal(await up.ended(), 130, up.err);
    assert.match(up.out + up.err, /nats-server does not answer.*; it is started again/);
    assert.deepEqual(up.processes(), []);
    assert(Summary.parse(JSON.parse(await up.read('summary.json'))).steps > 0);
  });

  it('offbeat up --resume continues the run and refuses other settings', async () => {
    await using first = await UpProcess.start([...lone, '--max-minutes=30']);
    await first.trainsOn();
    process.kill(first.pidOf('cli.js learner'), 'SIGTERM'); // as a daemon that frees memory does
    assert.equal(await first.ended(), 143, first.err);
    assert.match(first.out, /the learner got a signal[^]*stopped:/);
    const before = Summary.parse(JSON.parse(await first.read('summary.json')));

    await using other = await UpProcess.start(['--resume', '--learning-rate=0.5'], first);
    assert.equal(await other.ended(), 2);
    assert.match(
      other.err,
      /cannot be resumed with these settings[^]*--learning-rate is 0\.5, the run has 0\.002/,
    );
    await using examples = await UpProcess.start(['--resume'], first, {}, 'sft');
    assert.equal(await examples.ended(), 2);
    assert.match(
      examples.err,
      /does not train on examples; npm start -- --run \S+(?: --runs-dir \S+)? --resume/,
    );

    const nats = join(first.folder, 'nats-server');
    await executable(nats, `${serverText('2.9.10')}[ "$1" = --version ] || exec sleep 600\n`);
    await using stopped = await UpProcess.start(['--resume'], first, { OFFBEAT_NATS_SERVER: nats });
    await stopped.says(/continues\n/);
    stopped.child.kill('SIGINT');
    assert.equal(await stopped.ended(), 130, stopped.err);
    assert.match(stopped.err, /left no summary .*; the one there is of an earlier session$/m);
    await executable(nats, `${serverText('2.9.10')}[ "$1" = --version ] || exit 7\n`);
    const launch = await first.read('launch.json');
    const more = ['--resume', '--actors=3'];
    await using failed = await UpProcess.start(more, first, { OFFBEAT_NATS_SERVER: nats });
    assert.equal(await failed.ended(), 1, failed.err);
    assert.match(failed.err, /nats-server did not become ready/);
    assert.equal(await first.read('launch.json'), launch); // else the next attempt would have what may have failed
    assert.deepEqual(Summary.parse(JSON.parse(await first.read('summary.json'))), before);

    const goal = before.steps + 3;
    const flags = ['--resume', `--max-steps=${goal}`, '--json'];
    await using second = await UpProcess.start(flags, first);
    assert.equal(await second.ended(), 0, second.err);
    assert.match(second.err, /continues\n/);
    assert.match(await second.read('launch.json'), new RegExp(`"maxSteps": ${goal}\\b`));
    const { steps, groups } = Summary.parse(JSON.parse(second.out));
    assert.deepEqual([steps, groups.trained, groups.outstanding], [goal, 2 * goal, 0]);
    assert(groups.issued > before.groups.issued);
    const metrics = (await second.read('metrics.jsonl')).trimEnd().split('\n');
    assert.deepEqual(
      metrics.map((text) => (JSON.parse(text) as { step: number }).step),
      Array.from({ length: goal }, (_, i) => i + 1),
    );
    assert.deepEqual(second.processes(), []);
  });

  it('offbeat up gives up a diverging run and reports its last checkpoint', async () => {
    const wild = ['--learning-rate=10', '--stop-kl=0.01', '--stop-patience=1', '--max-steps=50'];
    await using up = await UpProcess.start([...lone, ...wild]);
    assert.equal(await up.ended(), 3, up.out + up.err);
    assert.match(up.out, /given up:[^]* diverged +at step \d+: .*; step \d+ is saved/);
    assert.deepEqual(up.processes(), []);
  });

  it('offbeat up keeps a run that ends by itself before its first step', async () => {
    const others = lone.filter((flag) => !flag.startsWith('--eval'));
    const flags = ['--max-minutes=0.0001', '--eval-problems=0', '--json'];
    await using up = await UpProcess.start([...others, ...flags]);
    assert.equal(await up.ended(), 0, up.out + up.err);
    const written = JSON.parse(await up.read('summary.json')) as { steps: number };
    assert.deepEqual([JSON.parse(up.out), written.steps], [written, 0]);
    await using again = await UpProcess.start(lone, up);
    assert.equal(await again.ended(), 2);
    assert.match(again.err, /already exists/);
  });

  it('offbeat up ends with the reason when the backend of the user does not answer', async () => {
    const backend = [
      '--backend-url=http://127.0.0.1:9',
      '--api-key=tml-test',
      `--model-dir=${embeddedModelPath}`,
    ];
    await using up = await UpProcess.start([...lone, ...backend, '--max-steps=1']);
    assert.equal(await up.ended(), 2, up.out + up.err);
    assert.match(up.err, /^no Tinker server .*http:\/\/127\.0\.0\.1:9/m);
    assert(!existsSync(up.path('.')));
  });
});

describe('offbeat up that cannot start', { timeout: 120_000 }, () => {
  it('offbeat up names every wrong flag and makes no folder', async () => {
    await using up = await UpProcess.start(['--actors=none', '--frob', '--loss=mse']);
    assert.equal(await up.ended(), 2, up.out + up.err);
    assert.match(up.err, /--frob is not a flag[^]*--loss[^]*--actors/);
    assert(!existsSync(up.path('.')));
  });

  it('offbeat up names a NATS server that does not answer', async () => {
    await using up = await UpProcess.start(['--nats-url=nats://127.0.0.1:9', '--max-steps=1']);
    assert.equal(await up.ended(), 2, up.out + up.err);
    assert.match(up.err, /^no NATS server answers at nats:\/\/127\.0\.0\.1:9 .*--nats-url/m);
    assert.deepEqual(up.processes(), []);
  });

  it('offbeat up keeps the logs of a start whose model cannot read the prompts, and frees its name', async () => {
    await using first = await UpProcess.start(['--prompt-style=think', '--max-steps=1']);
    assert.equal(await first.ended(), 2, first.out + first.err);
    assert.match(first.err, /had not begun: the corrected command may use the same name$/m);
    assert(existsSync(first.path('logs/learner.log')));
    await using second = await UpProcess.start(['--prompt-style=think', '--max-steps=1'], first);
    assert.equal(await second.ended(), 2);
    assert.doesNotMatch(second.err, /already exists/);
  });

  it('offbeat up leaves nothing when it is stopped before the run began', async () => {
    await using up = await UpProcess.start([]);
    await up.says(/nats-server .* at /);
    up.child.kill('SIGINT');
    assert.equal(await up.ended(), 130, up.err);
    assert(!existsSync(up.path('.')), up.out);
    assert.deepEqual(up.processes(), []);
  });
});
