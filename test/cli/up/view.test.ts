import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { lastWords, logTail } from '../../../cli/processes/log-tail.js';
import { progressSince, quarantineText, statusText, withEvent } from '../../../cli/up/progress.js';
import {
  countedRestarts,
  maxRestarts,
  restartDelayMs,
} from '../../../cli/processes/managed-process.js';
import { createRunFolder, removeIfNotBegun, runNameAt } from '../../../cli/run-folder.js';
import { createScreen, plainStatusEveryMs } from '../../../cli/up/screen.js';
import { formatSeconds, nextText, readSummary, summaryText } from '../../../cli/up/summary.js';
import { UserError } from '../../../shared/base/errors.js';
import type { RunEvent } from '../../../shared/wire/run-event.js';
import { RunName } from '../../../shared/wire/run-name.js';

describe('a restart', () => {
  const crash = { code: 1, signal: undefined };

  it('waits twice as long each time, and at last is not worth it', () => {
    const delays = Array.from({ length: maxRestarts + 1 }, (_, i) => restartDelayMs(crash, i));
    assert.deepEqual(delays, [1_000, 2_000, 4_000, 8_000, 16_000, undefined]);
  });

  it('is no help where the user must change something, or nothing could start', () => {
    assert.equal(restartDelayMs({ code: 2, signal: undefined }, 0), undefined);
    const absent = { code: undefined, signal: undefined, failure: 'ENOENT' };
    assert.equal(restartDelayMs(absent, 0), undefined);
  });

  it('no longer counts after a long life', () => {
    assert.deepEqual([countedRestarts(4, 59_999), countedRestarts(4, 60_000)], [4, 0]);
  });
});

describe('the status line', () => {
  const step = (step: number, at: number, metrics: Record<string, number>): RunEvent => ({
    v: 1,
    kind: 'step',
    at,
    step,
    version: step,
    metrics: { ...metrics, seconds: 10 },
  });
  const after = (events: readonly RunEvent[], since = 0) =>
    events.reduce(withEvent, progressSince(since));
  const metrics = {
    'env/all/reward/total': 0.4321,
    'env/all/correct': 0.371,
    'staleness/mean': 1.25,
    'scored/rollouts': 1024,
  };
  const three = [step(1, 10_000, metrics), step(2, 20_000, metrics), step(3, 30_000, metrics)];

  it('says that it waits until there is a step', () => {
    assert.equal(
      statusText(progressSince(1_000), {}, 66_000),
      'waiting for the first step, 1 min 5 s so far',
    );
  });

  it('shows what the newest step measured, the speed, and when it will be over', () => {
    const line = statusText(after(three), { maxSteps: 9 }, 30_000);
    assert.equal(
      line,
      'step 3/9  reward 0.432  solved 37.1 %  staleness 1.25  102.4 rollouts/s  1 min 0 s left',
    );
    const sooner = statusText(after(three), { maxSteps: 9, maxMinutes: 1 }, 30_000);
    assert.match(sooner, / {2}30 s left$/);
  });

  it('counts only the time that the run was up, after a resume and after a crash', () => {
    const hour = 3_600_000;
    const resumed = after(three, hour);
    assert.equal(statusText(resumed, {}, hour + 5_000), 'waiting for step 4, 5 s so far');
    const oneMore = withEvent(resumed, step(4, hour + 20_000, metrics));
    const goal = { maxSteps: 9, maxMinutes: 2 };
    assert.match(
      statusText(oneMore, goal, hour + 20_000),
      /^step 4\/9 .* 102\.4 rollouts\/s {2}50 s left$/,
    );
    const afterCrash = withEvent(oneMore, step(5, 2 * hour, metrics));
    assert.match(
      statusText(afterCrash, { maxSteps: 9 }, 2 * hour),
      / 102\.4 rollouts\/s {2}40 s left$/,
    );
  });

  it('leaves out what matters least where the screen is narrow', () => {
    const progress = after(three.slice(0, 2));
    const within = (columns: number) => statusText(progress, { maxSteps: 9 }, 20_000, columns);
    const shown = [80, 70, 55, 45, 32, 20, 5].map(within);
    assert.deepEqual(shown, [
      'step 2/9  reward 0.432  staleness 1.25  102.4 rollouts/s  1 min 10 s left',
      'step 2/9  reward 0.432  staleness 1.25  1 min 10 s left',
      'step 2/9  reward 0.432  1 min 10 s left',
      'step 2/9  reward 0.432  1 min 10 s left',
      'step 2/9  1 min 10 s left',
      'step 2/9',
      'step 2/9',
    ]);
  });

  it('does without what was not measured', () => {
    const bare: RunEvent = { v: 1, kind: 'step', at: 1, step: 1, version: 1, metrics: {} };
    assert.equal(statusText(after([bare]), {}, 5), 'step 1');
  });
});

describe('the screen', () => {
  const screenOn = (
    stream: { isTTY?: boolean; columns?: number },
    env: Record<string, string> = {},
  ) => {
    const written: string[] = [];
    const clock = { now: 0 };
    const write = (text: string) => written.push(text) > 0;
    return {
      written,
      clock,
      screen: createScreen({ stream: Object.assign(stream, { write }), env, now: () => clock.now }),
    };
  };

  it('rewrites one line on a terminal, and keeps it below what stays', () => {
    const { screen, written } = screenOn({ isTTY: true, columns: 10 }, { NO_COLOR: '1' });
    screen.status('step 1 of many');
    screen.note('evaluated');
    screen.status('');
    assert.deepEqual(written, ['\r\x1b[2Kstep 1 of', '\r\x1b[2Kevaluated\nstep 1 of', '\r\x1b[2K']);
  });

  it('takes a terminal that does not know its width for one of 80 columns', () => {
    const { screen, written } = screenOn({ isTTY: true, columns: 0 }, { NO_COLOR: '1' });
    screen.status('x'.repeat(100));
    assert.deepEqual(written, [`\r\x1b[2K${'x'.repeat(79)}`]);
  });

  it('fits what it shows again to a terminal whose width has changed', () => {
    const stream = { isTTY: true, columns: 20 };
    const { screen, written } = screenOn(stream, { NO_COLOR: '1' });
    assert.equal(screen.columns(), 20);
    screen.status('step 1 of many');
    stream.columns = 7;
    screen.note('evaluated');
    assert.equal(written.at(-1), '\r\x1b[2Kevaluated\nstep 1');
    assert.equal(screenOn({}).screen.columns(), Infinity);
  });

  it('has colours on a terminal only, and not against NO_COLOR', () => {
    const colored = (stream: { isTTY?: boolean }, env: Record<string, string> = {}) => {
      const { screen, written } = screenOn(stream, env);
      screen.warn('careful');
      return written.join('') !== 'careful\n';
    };
    assert(colored({ isTTY: true }));
    assert(!colored({ isTTY: true }, { NO_COLOR: '1' }));
    assert(!colored({ isTTY: true }, { TERM: 'dumb' }));
    assert(!colored({}));
  });

  it('writes plain lines elsewhere, not too many', () => {
    const { screen, written, clock } = screenOn({});
    screen.status('step 1');
    screen.status('step 2');
    clock.now = plainStatusEveryMs;
    screen.status('step 3');
    screen.status('');
    assert.deepEqual(written, ['step 1\n', 'step 3\n']);
  });
});

describe('the files of a run', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-files-'));
  });
  after(() => rm(folder, { recursive: true }));

  it('lie in a folder of its own, which is never used twice', async () => {
    const { folder: made, lock } = await createRunFolder(join(folder, 'runs'), 'first');
    assert.deepEqual((await readdir(made.path)).sort(), ['.lock', 'checkpoints', 'logs', 'nats']);
    await assert.rejects(createRunFolder(join(folder, 'runs'), 'first'), /process \d+ is at work/);
    await lock[Symbol.asyncDispose]();
    await writeFile(join(made.path, 'metrics.jsonl'), '{}\n'); // by its learner: the run has begun
    await assert.rejects(createRunFolder(join(folder, 'runs'), 'first'), (error) => {
      assert(error instanceof UserError);
      assert.match(
        error.message,
        /the run first exists already in .*; add --resume .*, choose another name with --run, or delete/,
      );
      return true;
    });
  });

  it('may have the name of a start that failed before its run began', async () => {
    const runs = join(folder, 'others');
    const start = async () => {
      const { folder: made, lock } = await createRunFolder(runs, 'late');
      await writeFile(made.launch, '{}');
      await writeFile(join(made.logs, 'learner.log'), 'no backend');
      await lock[Symbol.asyncDispose]();
      return made;
    };
    await removeIfNotBegun(await start(), { keepLogs: true });
    const again = await start();
    assert.deepEqual(await readdir(again.logs), ['learner.log']);
    await removeIfNotBegun(again, { keepLogs: false });
    assert.deepEqual(await readdir(runs), []);

    const states = join((await start()).checkpoints, 'some-run', 'weights');
    await mkdir(join(states, 'state-000000'), { recursive: true }); // nothing is trained
    await start();
    await mkdir(join(states, 'state-000001'), { recursive: true });
    await assert.rejects(createRunFolder(runs, 'late'), /exists already/);
    await mkdir(join(runs, 'of-a-user', 'logs', 'mine'), { recursive: true });
    await assert.rejects(createRunFolder(runs, 'of-a-user'), /exists already/);
  });

  it('need a folder that can be written', async () => {
    const file = join(folder, 'file');
    await writeFile(file, '');
    for (const runs of [file, join(file, 'runs')]) {
      await assert.rejects(createRunFolder(runs, 'x'), (error) => {
        assert(error instanceof UserError);
        assert.match(
          error.message,
          /^no run can be kept in \/.* \(.*\); name a folder .*--runs-dir$/,
        );
        return true;
      });
    }
  });

  it('are named by the time where the user gives no name', () => {
    const name = runNameAt(new Date(2026, 0, 2, 3, 4, 5));
    assert.equal(name, '20260102-030405');
    assert(RunName.safeParse(name).success);
  });

  it('end with the last lines of a log in words', async () => {
    const path = join(folder, 'log');
    const entry = {
      level: 40,
      time: '2026-11-21T01:02:03.000Z',
      service: 'actor',
      pid: 1,
      msg: 'slow',
      ms: 7,
    };
    await writeFile(
      path,
      ['cut off', JSON.stringify(entry), 'Segmentation fault', '', '[1]'].join('\n'),
    );
    assert.deepEqual(await logTail(path, 3), [
      '01:02:03 warn slow ms=7',
      'Segmentation fault',
      '[1]',
    ]);
    assert.deepEqual(await logTail(join(folder, 'none'), 3), []);
  });

  it('show the plain error of a service once', async () => {
    const path = join(folder, 'twice');
    const entry = { level: 60, time: '2026-11-21T01:02:03.000Z', msg: 'no such port' };
    await writeFile(path, `${JSON.stringify(entry)}\nno such port\n`);
    assert.deepEqual(await logTail(path, 5), ['01:02:03 fatal no such port']);
    const long = { ...entry, msg: 'two things are wrong:\n  - this\n  - that' };
    await writeFile(path, `${JSON.stringify(long)}\n${long.msg}\n`);
    assert.deepEqual(await logTail(path, 5), [
      ...['01:02:03 fatal two things are wrong:', '  - this', '  - that'],
    ]);
  });

  it('show what a process wrote, without its predecessors, and count what it repeats', async () => {
    const path = join(folder, 'repeated');
    const entry = (seconds: number, msg: string, level = 30) =>
      `${JSON.stringify({ level, time: `2026-11-21T01:02:${seconds}.000Z`, msg })}\n`;
    const before = entry(10, 'ended');
    const retries = Array.from({ length: 17 }, (_, i) => entry(20 + i, 'trying again')).join('');
    const end = `${entry(40, 'the weights are broken', 60)}the weights are broken\n`;
    await writeFile(path, before + retries + end);
    assert.deepEqual(await logTail(path, 25, before.length), [
      '01:02:36 info trying again (17 times)',
      '01:02:40 fatal the weights are broken',
    ]);
    assert.equal(await lastWords(path, before.length), 'the weights are broken');
    assert.equal(await lastWords(join(folder, 'none')), '');
    await writeFile(path, before + retries + end + entry(41, 'connection closed'));
    assert.equal(await lastWords(path, before.length), 'the weights are broken');
  });
});

describe('the summary', () => {
  let folder: string;
  let path: string;
  const summary = {
    run: 'r',
    steps: 12,
    version: 12,
    wallSeconds: 3725,
    groups: { issued: 9, trained: 4, skippedZeroVariance: 2, stale: 1, dead: 0, outstanding: 2 },
    staleness: { mean: 0.5, max: 2 },
    learnerIdleFraction: 0.25,
    rolloutsPerSecond: 12.34,
    tokensPerSecond: 4321.6,
    eval: {
      before: { sampled: 0.3, greedy: 0.4, passAt: { '1': 0.3, '4': 0.6 } },
      after: { sampled: 0.55, greedy: 0.6, passAt: { '1': 0.55, '4': 0.8 } },
      problems: 256,
    },
  };

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-summary-'));
    path = join(folder, 'summary.json');
  });
  after(() => rm(folder, { recursive: true }));

  /** Why the file is no summary. */
  async function reason(file: string): Promise<string> {
    const found = await readSummary(file);
    assert(typeof found === 'string');
    return found;
  }

  it('is what the learner wrote, further fields included', async () => {
    const whole = { ...summary, reason: 'max_steps' };
    await writeFile(path, JSON.stringify(whole));
    assert.deepEqual(await readSummary(path), whole);
  });

  it('is refused with every field that is wrong', async () => {
    await writeFile(path, JSON.stringify({ ...summary, steps: -1, staleness: { mean: 0 } }));
    assert.match(await reason(path), /steps: .*; staleness\.max: /);
    assert.match(await reason(join(folder, 'none')), /left no summary in .*none/);
  });

  it('reads well', () => {
    const text = summaryText(summary);
    assert.match(text, /12 \(policy version 12\)/);
    assert.match(text, /1 h 2 min/);
    assert.match(
      text,
      /4 trained of 9 issued; 2 without variance, 1 too stale, 0 dead, 2 outstanding/,
    );
    assert.match(text, /30\.0 % → 55\.0 % of 256 held-out problems/);
    assert.match(text, /40\.0 % → 60\.0 %/);
    assert.doesNotMatch(summaryText({ ...summary, eval: null }), /solved/);
  });

  it('says which evaluation there is where a run was stopped, or began, without one', () => {
    const of = (over: object) => summaryText({ ...summary, eval: { ...summary.eval, ...over } });
    const stopped = of({ after: null });
    assert.match(
      stopped,
      /solved +30\.0 % of 256 held-out problems before training; not measured at the end$/m,
    );
    assert.match(stopped, /solved greedily +40\.0 % before training$/m);
    assert.match(of({ before: null }), /solved +55\.0 % of 256 held-out problems at the end$/m);
    for (const text of [stopped, of({ before: null })]) assert.doesNotMatch(text, /\?/);
  });

  it('says where the results are, and the commands for what comes next', () => {
    const next = (over: object, runsDir = 'runs') =>
      nextText({ ...summary, ...over }, { folder: '/x/runs/r', runsDir });
    const text = next({ reason: 'max_steps' });
    assert.match(text, /^ {2}results +\/x\/runs\/r: metrics\.jsonl/);
    for (const command of ['dashboard', 'report', 'eval']) {
      assert.match(text, new RegExp(` npx offbeat ${command} --run r$`, 'm'));
    }
    assert.match(text, / npm start -- --run r --resume --max-steps 24$/);
    assert.match(next({ reason: 'max_minutes' }), /--resume --max-minutes 5$/);
    assert.match(next({ reason: 'stopped' }, '/y'), /eval --run r --runs-dir \/y\n.*--resume$/);
    assert.doesNotMatch(next({ drought: { groups: 9, reward: 1 } }), /--resume/);
  });

  it('tells why training was given up, and what is left of it', () => {
    const divergence = { step: 9, reason: 'the reward is 0.1', checkpointStep: 5 };
    const text = summaryText({ ...summary, divergence });
    assert.match(text, /diverged +at step 9: the reward is 0\.1; step 5 is saved/);
  });

  it('tells that nothing was left to learn from', () => {
    const text = summaryText({ ...summary, drought: { groups: 1000, reward: 0.985 } });
    assert.match(
      text,
      /no signal +the last 1000 groups had no variance; their reward was 0\.98; the task is learnt/,
    );
    const bad = summaryText({ ...summary, drought: { groups: 1000, reward: 0 } });
    assert.match(bad, /easier problems, a larger --group-size.*docs\/troubleshooting\.md/);
  });

  it('tells time in the units that matter', () => {
    assert.deepEqual([9.6, 61, 3600, 7384].map(formatSeconds), [
      '10 s',
      '1 min 1 s',
      '1 h 0 min',
      '2 h 3 min',
    ]);
  });
});

describe('what is said of a quarantined actor', () => {
  const event = (gap: number, bound: number, why?: 'gap' | 'likelihood' | 'fleet' | 'impossible') =>
    quarantineText({
      ...{ v: 1, at: 0, kind: 'quarantine', actor: 'actor-1', gap, bound, groups: 4, version: 2 },
      ...(why === undefined ? {} : { why }),
    });

  it('names the actor, what was found and what follows', () => {
    const texts: [text: string, found: RegExp][] = [
      [event(0.3, 0.05), /in 4 groups its logprobs were 0\.300 nats .* 0\.050 is the most\./],
      [event(0.3, 0.05, 'gap'), /in 4 groups its logprobs were 0\.300 nats/],
      [event(42.7, 20.7, 'likelihood'), /the chance that they do is below e\^-42\./],
      [event(11.26, 5, 'fleet'), /11\.3 times as far .* and 5 times is the most\./],
      [event(3, 3, 'impossible'), /no policy can have the logprobs that 4 of its groups claim\./],
    ];
    for (const [text, found] of texts) {
      assert.match(text, /^actor-1 is quarantined: /);
      assert.match(text, found);
      assert.match(text, /What it samples is refused from now on\.$/);
    }
  });
});
