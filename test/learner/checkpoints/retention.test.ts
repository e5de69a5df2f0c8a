import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isCheckpointed, statesToDelete } from '../../../learner/checkpoints/retention.js';

const state = (step: number, score?: number) => ({
  step,
  path: `tinker://run/weights/state-${step}`,
  ...(score !== undefined && { score }),
});
const deleted = (
  states: ReturnType<typeof state>[],
  keepEverySteps = 0,
  underEvaluation: number[] = [],
) => statesToDelete(states, { keepEverySteps, underEvaluation }).map(({ step }) => step);

describe('the steps that get a checkpoint', () => {
  it('a step gets a checkpoint at the usual interval, or if its checkpoint is kept for good', () => {
    const steps = (keepEverySteps: number) =>
      Array.from({ length: 31 }, (_, step) => step).filter((step) =>
        isCheckpointed(step, { checkpointEverySteps: 10, keepEverySteps }),
      );
    assert.deepEqual(steps(0), [0, 10, 20, 30]);
    assert.deepEqual(steps(15), [0, 10, 15, 20, 30]);
  });
});

describe('the states that a run keeps', () => {
  it('the newest two states are kept', () => {
    assert.deepEqual(deleted([state(1)]), []);
    assert.deepEqual(deleted([state(10), state(20)]), []);
    assert.deepEqual(deleted([state(10), state(20), state(30), state(40)]), [10, 20]);
  });

  it('the state of every n-th step is kept, including step 0', () => {
    const all = [0, 10, 20, 30, 40, 50].map((step) => state(step));
    assert.deepEqual(deleted(all, 20), [10, 30]);
  });

  it('the best state by evaluation is kept, the newer of equals, until a better one comes', () => {
    const all = [state(10, 0.4), state(20, 0.6), state(30, 0.6), state(40), state(50)];
    assert.deepEqual(deleted(all), [10, 20]);
    assert.deepEqual(deleted([...all, state(60, 0.7)]), [10, 20, 30, 40]);
  });

  it('a state is kept while it is under evaluation', () => {
    const all = [state(10), state(20, 0.6), state(30), state(40), state(50)];
    assert.deepEqual(deleted(all, 0, [10, 50]), [30]);
  });
});
