import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { evalsJournal, Journal, metricsJournal } from '../../../learner/report/journal.js';
import type { EvalEvent, StepEvent } from '../../../learner/report/history.js';
import { silent } from '../../support/log.js';
import { evalResult } from '../../support/messages.js';

const wait = { log: silent, signal: new AbortController().signal };
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'offbeat-journal-'));
});
afterEach(() => rm(folder, { recursive: true }));

const event = (step: number, at = step): StepEvent => ({
  ...{ v: 1, kind: 'step', at, step, version: step, metrics: { reward: step / 10 } },
});
const lines = async (name: string) =>
  (await readFile(join(folder, name), 'utf8'))
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as { step?: number; version: number; time: string });
const stepsIn = async (name: string) => (await lines(name)).map(({ step }) => step);
const open = (events: readonly StepEvent[], until: number) =>
  Journal.open(folder, metricsJournal, events, (step) => step <= until, wait);

describe('metricsJournal', () => {
  it('metrics.jsonl has a line for each past and each new event', async () => {
    const journal = await open([event(1), event(2)], 2);
    await journal.append(event(3));
    assert.deepEqual(await lines('metrics.jsonl'), [
      { step: 1, version: 1, time: '1970-01-01T00:00:00.001Z', reward: 0.1 },
      { step: 2, version: 2, time: '1970-01-01T00:00:00.002Z', reward: 0.2 },
      { step: 3, version: 3, time: '1970-01-01T00:00:00.003Z', reward: 0.3 },
    ]);
  });

  it('metrics.jsonl keeps the whole line of a step whose event was too large for a message', async () => {
    const before = await open([], 0);
    for (const step of [1, 2]) await before.append(event(step));
    const shortened = (step: number) => ({ ...event(step), metrics: { metrics_left_out: 1 } });
    await open([shortened(1), event(2), shortened(3)], 3);
    const time = (step: number) => `1970-01-01T00:00:00.00${step}Z`;
    assert.deepEqual(await lines('metrics.jsonl'), [
      { step: 1, version: 1, time: time(1), reward: 0.1 },
      { step: 2, version: 2, time: time(2), reward: 0.2 },
      { step: 3, version: 3, time: time(3), metrics_left_out: 1 },
    ]);
  });

  it('metrics.jsonl keeps steps whose events are lost', async () => {
    const before = await open([], 0);
    for (const step of [1, 2, 3, 4]) await before.append(event(step));
    await open([event(2), event(4)], 4);
    assert.deepEqual(await stepsIn('metrics.jsonl'), [1, 2, 3, 4]);
    await assert.rejects(readFile(join(folder, 'metrics.undone.jsonl')), { code: 'ENOENT' });
  });

  it('steps that a crash rolled back move from metrics.jsonl to a file beside it, each time', async () => {
    const first = await open([], 0);
    for (const step of [1, 2, 3, 4]) await first.append(event(step));
    const second = await open([event(1), event(2)], 2);
    assert.deepEqual(await stepsIn('metrics.jsonl'), [1, 2]);
    assert.deepEqual(await stepsIn('metrics.undone.jsonl'), [3, 4]);
    await second.append(event(3, 103));
    await open([event(1), event(2)], 2);
    const undone = await lines('metrics.undone.jsonl');
    assert.deepEqual(
      undone.map(({ step, time }) => [step, Date.parse(time)]),
      [
        [3, 3],
        [4, 4],
        [3, 103],
      ],
    );
  });

  it('metrics.jsonl takes the new event of a step that was trained again and keeps the old line beside it', async () => {
    const first = await open([], 0);
    await first.append(event(1));
    await open([event(1, 101)], 1);
    const times = (name: string) => lines(name).then((found) => found.map(({ time }) => time));
    assert.deepEqual(await times('metrics.jsonl'), ['1970-01-01T00:00:00.101Z']);
    assert.deepEqual(await times('metrics.undone.jsonl'), ['1970-01-01T00:00:00.001Z']);
  });

  it('metrics.jsonl leaves out a line that a crash cut off', async () => {
    await writeFile(join(folder, 'metrics.jsonl'), '{"step":1,"version":1}\n{"step":2,"ver');
    await open([event(2)], 2);
    assert.deepEqual(await stepsIn('metrics.jsonl'), [1, 2]);
  });

  it('metrics.jsonl keeps a line whose text has a line break of Unicode', async () => {
    const line = JSON.stringify({ step: 1, version: 1, time: 'then', note: 'a\u2028b' });
    await writeFile(join(folder, 'metrics.jsonl'), `${line}\n`);
    await open([event(2)], 2);
    const text = await readFile(join(folder, 'metrics.jsonl'), 'utf8');
    assert.equal(text.split('\n')[0], line);
    assert.deepEqual(await stepsIn('metrics.jsonl'), [1, 2]);
  });

  it('metrics.jsonl has all lines if they are written in several pieces', async () => {
    const note = 'x'.repeat(700_000);
    const before = [1, 2, 3].map((step) =>
      JSON.stringify({ step, version: step, time: 't', note }),
    );
    await writeFile(join(folder, 'metrics.jsonl'), `${before.join('\n')}\n`);
    const journal = await open([event(4)], 4);
    await journal.append(event(5));
    assert.deepEqual(await stepsIn('metrics.jsonl'), [1, 2, 3, 4, 5]);
  });

  it('a learner that another one has replaced cannot write metrics.jsonl', async () => {
    const old = await open([], 0);
    const current = await open([], 0);
    await assert.rejects(old.append(event(1)), /metrics\.jsonl was replaced/);
    await current.append(event(1));
    assert.deepEqual(await stepsIn('metrics.jsonl'), [1]);
  });
});

describe('evalsJournal', () => {
  const evaluation = (version: number): EvalEvent => ({
    ...{ v: 1, kind: 'eval', at: version, result: { ...evalResult(), version } },
  });

  it('evals.jsonl keeps evaluations that only the file has, up to the restored version', async () => {
    const openAt = (events: readonly EvalEvent[], until: number) =>
      Journal.open(folder, evalsJournal, events, (version) => version <= until, wait);
    const first = await openAt([], -1);
    for (const version of [0, 2, 4]) await first.append(evaluation(version));
    await openAt([evaluation(4)], 4);
    const versions = async (name: string) => (await lines(name)).map(({ version }) => version);
    assert.deepEqual(await versions('evals.jsonl'), [0, 2, 4]);
    await openAt([], -1);
    assert.deepEqual(await versions('evals.jsonl'), []);
    assert.deepEqual(await versions('evals.undone.jsonl'), [0, 2, 4]);
  });
});
