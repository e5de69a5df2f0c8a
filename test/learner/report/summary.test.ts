import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import type { Bill } from '../../../learner/cost/bill.js';
import { noSteps, withStep } from '../../../learner/report/history.js';
import { summarize, writeSummary } from '../../../learner/report/summary.js';
import { silent } from '../../support/log.js';
import { evalResult } from '../../support/messages.js';

const wait = { log: silent, signal: new AbortController().signal };
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'offbeat-summary-'));
});
afterEach(() => rm(folder, { recursive: true }));
const path = () => join(folder, 'summary.json');
/** The reason in the file after a session has ended for `reason`. */
const reasonAfter = async (reason: string) => {
  await writeSummary(folder, { reason }, wait);
  return (JSON.parse(await readFile(path(), 'utf8')) as { reason: string }).reason;
};

describe('summary.json', () => {
  it('a session that was stopped before its first step leaves the summary of a finished run', async () => {
    await writeFile(path(), '{"reason":"max_steps"}');
    assert.equal(await reasonAfter('stopped'), 'max_steps');
  });

  it('a session that was stopped writes its summary where there is none', async () => {
    assert.equal(await reasonAfter('stopped'), 'stopped');
  });

  it('a session that ended by itself replaces the summary of an earlier one', async () => {
    await writeFile(path(), '{"reason":"stopped"}');
    assert.equal(await reasonAfter('max_steps'), 'max_steps');
  });
});

describe('the summary', () => {
  const bill: Bill = {
    tokens: {
      ...{ sampled: 9, trained: 4, evaluated: 2, inFlight: 1, wasted: 2, wastedBy: { stale: 2 } },
      ...{ masked: 0, undone: 0, prompts: 7 },
    },
    heldSeconds: { sampler: 1.23456, trainer: 2, reward: 2 },
    gpuSeconds: { sampler: 0, trainer: 0, reward: 0 },
  };

  it('the summary compares the solve rates before and after only over as many problems', () => {
    const groups = { issued: 0, trained: 0, skippedZeroVariance: 0, stale: 0, dead: 0 };
    const evalOf = (before: number, after: number | undefined) => {
      const summary = summarize({
        ...{ run: 'r', reason: 'max_steps', version: 2, wallSeconds: 1, bill, totals: noSteps },
        groups: { ...groups, outstanding: 0 },
        before: evalResult({ problems: before }),
        after: after === undefined ? undefined : evalResult({ version: 2, problems: after }),
      });
      const { before: first, problems } = summary['eval'] as { before: unknown; problems: number };
      return [first !== null, problems];
    };
    assert.deepEqual(evalOf(64, 64), [true, 64]);
    assert.deepEqual(evalOf(64, undefined), [true, 64]);
    assert.deepEqual(evalOf(64, 1_024), [false, 1_024]);
  });

  it('the summary covers the whole run and takes rates over the training time', () => {
    const metrics = { seconds: 2, idle_seconds: 0.5, 'scored/rollouts': 8, 'scored/tokens': 80 };
    const event = { v: 1, at: 0, kind: 'step' } as const;
    const summary = summarize({
      run: 'r',
      reason: 'max_steps',
      version: 2,
      wallSeconds: 9.87654,
      before: undefined,
      groups: { issued: 4, trained: 4, skippedZeroVariance: 0, stale: 0, dead: 0, outstanding: 0 },
      bill,
      totals: [0, 1, 0.5]
        .map((mean) => ({ ...metrics, 'staleness/mean': mean, 'staleness/max': 2 * mean }))
        .map((line, i) => ({ ...event, step: i + 1, version: i + 1, metrics: line }))
        .reduce(withStep, noSteps),
      after: evalResult({ version: 2, problems: 16, sampled: 0.5, greedy: 0.75 }),
    });
    assert.deepEqual(summary['staleness'], { mean: 0.5, max: 2 });
    assert.equal(summary['learnerIdleFraction'], 0.25);
    assert.equal(summary['steps'], 3);
    assert.deepEqual([summary['rolloutsPerSecond'], summary['tokensPerSecond']], [4, 40]);
    assert.deepEqual(summary['eval'], {
      before: null,
      after: { sampled: 0.5, greedy: 0.75, passAt: { '1': 0.25, '2': 0.5 } },
      problems: 16,
    });
    assert.equal(summary['wallSeconds'], 9.8765);
    assert.deepEqual(summary['cost'], {
      ...bill,
      heldSeconds: { sampler: 1.2346, trainer: 2, reward: 2 },
    });
  });
});
