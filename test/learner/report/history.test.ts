import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  type EvalEvent,
  firstEvaluation,
  pastScores,
  readHistory,
  type StepEvent,
} from '../../../learner/report/history.js';
import type { RunEvent } from '../../../shared/wire/run-event.js';
import { checkpoint, evalResult } from '../../support/messages.js';

describe('the history of a run', () => {
  const step = (n: number, reward: number, version = n): StepEvent => ({
    v: 1,
    at: n,
    kind: 'step',
    step: n,
    version,
    metrics: { reward },
  });
  const evaluated = (version: number): EvalEvent => ({
    ...{ v: 1, at: 0, kind: 'eval', result: evalResult({ version }) },
  });

  it('the history ends at the announced version, without the steps that a crash rolled back', async () => {
    const events: RunEvent[] = [
      { v: 1, at: 0, kind: 'version', version: 0 },
      evaluated(0),
      ...[step(1, 0.1), step(2, 0.2), step(3, 0.3)],
      evaluated(3),
      { v: 1, at: 9, kind: 'version', version: 4 },
      evaluated(4),
      ...[step(2, 0.25, 5), step(3, 0.35, 6)],
      ...[evaluated(5), evaluated(6)],
      { v: 1, at: 9, kind: 'version', version: 7 },
    ];
    async function* read() {
      for (const event of events) yield await Promise.resolve(event);
      await new Promise(() => undefined); // live from here: reading would never end
    }
    const history = await readHistory({ read } as never, 7, 2);
    assert.deepEqual(history.steps, [step(1, 0.1), step(2, 0.25, 5)]);
    // Version 4 is that of step 1, published again.
    assert.deepEqual(history.evals, [evaluated(0), evaluated(4), evaluated(5)]);
    assert.deepEqual([...history.undoneVersions], [2, 3, 6]);
    assert.deepEqual([...history.restoredVersions], [0, 4]);
  });

  it('the history keeps the evaluation of restored weights that got the number of an undone step', async () => {
    const rewinds = [{ from: 3, to: 2 }];
    const events: RunEvent[] = [
      { v: 1, at: 0, kind: 'version', version: 0 },
      ...[step(1, 0.1), step(2, 0.2)],
      { v: 1, at: 2, kind: 'version', version: 2 },
      step(3, 0.3), // the learner dies before it publishes version 3
      { v: 1, at: 9, kind: 'checkpoint', checkpoint: checkpoint({ step: 2, version: 2, rewinds }) },
      { v: 1, at: 9, kind: 'version', version: 3 },
      evaluated(3),
      { v: 1, at: 9, kind: 'version', version: 4 },
    ];
    const read = async function* () {
      for (const event of events) yield await Promise.resolve(event);
    };
    const history = await readHistory({ read } as never, 4, 2);
    assert.deepEqual(history.evals, [evaluated(3)]);
    assert.deepEqual([...history.undoneVersions], []);
    assert.deepEqual([...history.restoredVersions], [0, 3]);
  });

  it('a version that was published before its step was recorded is not one of restored weights', async () => {
    const events: RunEvent[] = [
      { v: 1, at: 0, kind: 'version', version: 0 },
      step(1, 0.1),
      ...[1, 2].map((version) => ({ v: 1, at: 2, kind: 'version', version }) as const),
      ...[step(2, 0.2), evaluated(2)],
      { v: 1, at: 9, kind: 'version', version: 3 },
    ];
    const read = async function* () {
      for (const event of events) yield await Promise.resolve(event);
    };
    const history = await readHistory({ read } as never, 3, 2);
    const [[scoredStep] = []] = pastScores(history);
    assert.equal(scoredStep, 2);
  });

  it('the first evaluation is that of the weights which the run began with', () => {
    const steps = [step(1, 0.1, 3), step(2, 0.2, 4)];
    const of = (from: readonly StepEvent[], until: number, ...versions: number[]) =>
      firstEvaluation({ steps: from, evals: versions.map(evaluated) }, until)?.version;
    assert.equal(of(steps, 2, 0, 4), 0);
    assert.equal(of(steps, 2, 2, 4), 2); // resumed twice before its first step
    assert.equal(of(steps, 2, 3, 4), undefined);
    assert.equal(of([], 0, 1), 1);
    assert.equal(of(steps.slice(1), 2, 2), undefined); // it may be that of a step whose event is lost
  });
});
