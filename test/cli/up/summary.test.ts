import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { formatSeconds, nextText, readSummary, summaryText } from '../../../cli/up/summary.js';

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

  it('the summary is read as the learner wrote it, unknown fields included', async () => {
    const whole = { ...summary, reason: 'max_steps' };
    await writeFile(path, JSON.stringify(whole));
    assert.deepEqual(await readSummary(path), whole);
  });

  it('the printed summary has the tokens by use, the GPU time and the money', () => {
    const cost = {
      tokens: {
        ...{ sampled: 110, trained: 60, evaluated: 20, wasted: 25, inFlight: 5 },
        wastedBy: { zero_variance: 15, stale: 10, duplicate: 0 },
      },
      heldSeconds: { sampler: 90, trainer: 60, reward: 60 },
      gpuSeconds: { sampler: 0, trainer: 0, reward: 0 },
    };
    const text = summaryText({ ...summary, cost });
    assert.match(
      text,
      /110 sampled: 60 trained, 20 evaluated, 25 wasted \(15 zero variance, 10 stale\), 5 in flight/,
    );
    assert.match(text, /held +sampler 1 min 30 s, trainer 1 min 0 s\n/);
    assert.doesNotMatch(text, / cost /);
    const gpuSeconds = { sampler: 0, trainer: 120, reward: 0 };
    const ofExamples = { ...cost, tokens: { ...cost.tokens, examples: 2_810 } };
    assert.match(
      summaryText({ ...summary, cost: ofExamples }),
      /tokens +2810 of examples trained; \d+ sampled/,
    );
    const paid = { ...cost, gpuSeconds, money: { trainer: 1.5, trained: 0.0042, total: 1.5042 } };
    assert.match(summaryText({ ...summary, cost: paid }), /GPU time +trainer 2 min 0 s\n/);
    assert.match(
      summaryText({ ...summary, cost: paid }),
      /cost +1\.50: trainer 1\.50, trained 0\.0042/,
    );
  });

  it('the summary is refused with all wrong fields at once', async () => {
    await writeFile(path, JSON.stringify({ ...summary, steps: -1, staleness: { mean: 0 } }));
    assert.match(await reason(path), /steps: .*; staleness\.max: /);
    assert.match(await reason(join(folder, 'none')), /left no summary in .*none/);
  });

  it('the summary is printed in readable lines', () => {
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

  it('the summary says which evaluation exists if a run was stopped, or began, without one', () => {
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

  it('the summary names the folder of the results and the commands for the next steps', () => {
    const next = (over: object, runsDir = 'runs', finalRateShare?: number) =>
      nextText({ ...summary, ...over }, { folder: '/x/runs/r', runsDir, finalRateShare });
    const text = next({ reason: 'max_steps' });
    assert.match(text, /^ {2}results +\/x\/runs\/r: metrics\.jsonl/);
    assert.doesNotMatch(text, /adapter/);
    const adapter = '/x/runs/r/checkpoints/id/weights/state-000012/adapter';
    assert.match(
      nextText(summary, { folder: '/x/runs/r', runsDir: 'runs', adapter }),
      /^ {2}adapter +\S+\/state-000012\/adapter \(docs\/export\.md\)$/m,
    );
    for (const command of ['dashboard', 'report', 'eval']) {
      assert.match(text, new RegExp(` npx offbeat ${command} --run r$`, 'm'));
    }
    assert.match(text, / npm start -- --run r --resume --max-steps 24$/);
    assert.match(next({ reason: 'max_minutes' }), /--resume --max-minutes 5$/);
    assert.match(next({ reason: 'stopped' }, '/y'), /eval --run r --runs-dir \/y\n.*--resume$/);
    assert.match(next({}, '/my runs'), /eval --run r --runs-dir '\/my runs'$/m);
    assert.doesNotMatch(next({ drought: { groups: 9, reward: 1 } }), /--resume/);
    // No learning rate is left, but for a run that has not reached its end.
    assert.doesNotMatch(next({ reason: 'max_steps' }, 'runs', 0), /--resume/);
    assert.match(next({ reason: 'stopped' }, 'runs', 0), /--resume$/);
  });

  it('the summary of a run on examples has their loss, and the command that starts reinforcement learning', () => {
    const supervised = { examples: 96, epochs: 1.5, nll: 0.44, heldOutNll: 0.512 };
    const text = summaryText({ ...summary, supervised, from: 'warm@12' });
    assert.match(text, /from +warm@12\n/);
    assert.match(text, /examples +96, 1\.50 epochs\n/);
    assert.match(text, /nll +0\.440 nats per token of the last step, 0\.512 held out\n/);
    assert.doesNotMatch(text, /staleness|rollouts/);
    const untrained = summaryText({ ...summary, supervised: { ...supervised, nll: undefined } });
    assert.match(untrained, /nll +0\.512 held out\n/); // a resumed run without a step left
    const lacking = summaryText({ ...summary, supervised: { ...supervised, leftOut: 3 } });
    assert.match(lacking, /examples +96, 1\.50 epochs; 3 left out\n/);
    const next = nextText(
      { ...summary, supervised },
      { folder: '/x/runs/r', runsDir: 'runs', modelDir: 'models/m' },
    );
    assert.match(next, / npm start -- --from r --model-dir models\/m, with this run's flags/);
    assert.match(next, / npx offbeat sft --run r --resume/);
  });

  it('the summary says why training was given up and which checkpoint is saved', () => {
    const divergence = { step: 9, reason: 'the reward is 0.1', checkpointStep: 5 };
    const text = summaryText({ ...summary, divergence });
    assert.match(text, /diverged +at step 9: the reward is 0\.1; step 5 is saved/);
  });

  it('the summary reports a run that ended without signal, with the remedy if its reward was low', () => {
    const text = summaryText({ ...summary, drought: { groups: 1000, reward: 0.985 } });
    assert.match(
      text,
      /no signal +the last 1000 groups had no variance; their reward was 0\.98; the task is learned/,
    );
    const bad = summaryText({ ...summary, drought: { groups: 1000, reward: 0 } });
    assert.match(bad, /easier problems, a larger --group-size.*docs\/troubleshooting\.md/);
  });

  it('the summary prints times in their two largest units', () => {
    assert.deepEqual([9.6, 61, 3600, 7384].map(formatSeconds), [
      '10 s',
      '1 min 1 s',
      '1 h 0 min',
      '2 h 3 min',
    ]);
  });
});
