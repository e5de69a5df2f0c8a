import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EventHistory } from '../../../cli/dashboard/run/history.js';
import type { RunEvent } from '../../../shared/wire/run-event.js';
import { evalResult } from '../../support/messages.js';

const step = (number: number, reward = 0, version = number): RunEvent => ({
  ...{ v: 1, at: 1_000 * number, kind: 'step', step: number, version },
  metrics: { 'env/all/reward/total': reward },
});
const evaluation = (version: number): RunEvent => ({
  ...{ v: 1, at: 0, kind: 'eval', result: evalResult({ version }) },
});
const leader: RunEvent = { v: 1, at: 0, kind: 'leader', holder: 'learner' };
const end: RunEvent = { v: 1, at: 0, kind: 'end', summary: { reason: 'max_steps' } };

function after(...events: readonly RunEvent[]): EventHistory {
  const history = new EventHistory();
  for (const event of events) history.take(event);
  return history;
}

describe('the history of a run', () => {
  it('the history of a run has its steps and evaluations in order', () => {
    const history = after(evaluation(0), step(1), step(2), evaluation(2));
    assert.deepEqual(
      history.steps.map((point) => point.step),
      [1, 2],
    );
    assert.deepEqual(
      history.evals.map(({ version }) => version),
      [0, 2],
    );
  });

  it('the history of a run drops the steps that a crashed learner had trained after its checkpoint', () => {
    const history = after(step(1), step(2, 0.2), step(3, 0.3), evaluation(3), step(2, 0.25));
    assert.deepEqual(
      history.steps.map(({ step: number, metrics }) => [number, metrics['env/all/reward/total']]),
      [
        [1, 0],
        [2, 0.25],
      ],
    );
    assert.deepEqual(history.evals, []);
  });

  it('the history of a run drops the evaluations of such steps, whatever versions come after them', () => {
    const before = [evaluation(0), step(1), step(2), step(3), evaluation(3)];
    const { evals } = after(...before, evaluation(4), step(2, 0, 5), evaluation(5)); // 4 is version 1 again
    assert.deepEqual(
      evals.map(({ version }) => version),
      [0, 4, 5],
    );
  });

  it('the history of a run is complete at its end, and continues if the run is resumed', () => {
    assert.deepEqual(after(step(1), end).summary, { reason: 'max_steps' });
    assert.equal(after(leader, step(1), end, leader).summary, undefined);
    assert.equal(after(leader, step(1), end, leader, step(2)).summary, undefined);
    assert.deepEqual(after(step(1), end, leader, end).summary, { reason: 'max_steps' });
  });

  it('the history of a run names each quarantined actor once', () => {
    const quarantine: RunEvent = {
      ...{ v: 1, at: 0, kind: 'quarantine', actor: 'actor-1' },
      ...{ gap: 1, bound: 0.1, groups: 4, version: 2 },
    };
    assert.deepEqual(after(quarantine, quarantine).quarantined, ['actor-1']);
  });
});
