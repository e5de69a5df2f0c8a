import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { statesToDelete } from '../../../learner/checkpoints/retention.js';

const state = (step: number, score?: number) => ({
  step,
  path: `tinker://run/weights/state-${step}`,
  ...(score !== undefined && { score }),
});
const dropped = (
  states: ReturnType<typeof state>[],
  keepEverySteps = 0,
  underEvaluation: number[] = [],
) => statesToDelete(states, { keepEverySteps, underEvaluation }).map(({ step }) => step);

describe('the states that a run keeps', () => {
  it('are the newest two', () => {
    assert.deepEqual(dropped([state(1)]), []);
    assert.deepEqual(dropped([state(10), state(20)]), []);
    assert.deepEqual(dropped([state(10), state(20), state(30), state(40)]), [10, 20]);
  });

  it('and one every so many steps, that of the start included', () => {
    const all = [0, 10, 20, 30, 40, 50].map((step) => state(step));
    assert.deepEqual(dropped(all, 20), [10, 30]);
  });

  it('and the best by evaluation, of equals the newer, until a better one comes', () => {
    const all = [state(10, 0.4), state(20, 0.6), state(30, 0.6), state(40), state(50)];
    assert.deepEqual(dropped(all), [10, 20]);
    assert.deepEqual(dropped([...all, state(60, 0.7)]), [10, 20, 30, 40]);
  });

  it('and those that may be the best, as long as their evaluation is under way', () => {
    const all = [state(10), state(20, 0.6), state(30), state(40), state(50)];
    assert.deepEqual(dropped(all, 0, [10, 50]), [30]);
  });
});
