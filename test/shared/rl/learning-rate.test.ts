import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  learningRateAt,
  progressAt,
  type RunProgress,
  Schedule,
} from '../../../shared/rl/learning-rate.js';
import { assertClose } from './close.js';

describe('a learning rate with its peak at 0.1', () => {
  const rates = (schedule: Schedule, at: [step: number, progress: number][]) =>
    at.map(([step, progress]) => learningRateAt(0.1, schedule, step, progress));

  it('the constant learning rate stays at its peak', () => {
    const schedule = { kind: 'constant', warmupSteps: 0, finalShare: 0.1 } as const;
    const points: [number, number][] = [
      [1, 0],
      [50, 0.5],
      [100, 1],
    ];
    assertClose(rates(schedule, points), [0.1, 0.1, 0.1]);
  });

  it('the linear learning rate falls to its final share', () => {
    const schedule = { kind: 'linear', warmupSteps: 0, finalShare: 0.2 } as const;
    const points: [number, number][] = [
      [1, 0],
      [50, 0.5],
      [100, 1],
    ];
    assertClose(rates(schedule, points), [0.1, 0.06, 0.02]);
  });

  it('the cosine learning rate falls along a cosine', () => {
    const schedule = { kind: 'cosine', warmupSteps: 0, finalShare: 0 } as const;
    const points: [number, number][] = [
      [1, 0],
      [25, 0.25],
      [50, 0.5],
      [100, 1],
    ];
    assertClose(rates(schedule, points), [0.1, 0.05 * (1 + Math.SQRT1_2), 0.05, 0]);
  });

  it('the learning rate warms up by steps, in equal parts, and reaches its peak at the last of them', () => {
    const schedule = { kind: 'constant', warmupSteps: 4, finalShare: 0 } as const;
    const points: [number, number][] = [1, 2, 4, 5].map((step) => [step, 0]);
    assertClose(rates(schedule, points), [0.025, 0.05, 0.1, 0.1]);
  });

  it('the learning rate may decay while it warms up', () => {
    const schedule = { kind: 'linear', warmupSteps: 2, finalShare: 0 } as const;
    assertClose(rates(schedule, [[1, 0.5]]), [0.025]);
  });
});

describe('the schedule of a run', () => {
  it('a schedule ends at a share of the peak from 0 to 1', () => {
    const isValid = (finalShare: number) =>
      Schedule.safeParse({ kind: 'linear', warmupSteps: 0, finalShare }).success;
    assert.deepEqual([0, 0.1, 1].map(isValid), [true, true, true]);
    assert.deepEqual([-0.1, 1.1].map(isValid), [false, false]);
  });
});

describe('the progress of a run', () => {
  const fresh: RunProgress = {
    progressBefore: 0,
    stepBefore: 0,
    maxSteps: Infinity,
    maxSeconds: Infinity,
  };

  it('the progress of a run depends on steps, or on time if there is no last step', () => {
    assert.equal(progressAt({ ...fresh, maxSteps: 40 }, 10, 1_000), 0.25);
    assert.equal(progressAt({ ...fresh, maxSeconds: 60 }, 10, 15), 0.25);
  });

  it('the progress of a run depends on the nearer limit', () => {
    const both = { ...fresh, maxSteps: 40, maxSeconds: 60 };
    assert.equal(progressAt(both, 10, 30), 0.5);
    assert.equal(progressAt(both, 30, 30), 0.75);
  });

  it('the progress of a run is constant without a limit and never exceeds 1', () => {
    assert.equal(progressAt({ ...fresh, progressBefore: 0.3 }, 10, 100), 0.3);
    assert.equal(progressAt({ ...fresh, maxSeconds: 60 }, 10, 90), 1);
  });

  it('the progress of a run is step / maxSteps in every session with the same last step', () => {
    const resumed = { ...fresh, progressBefore: 0.25, stepBefore: 10, maxSteps: 40 };
    assertClose([progressAt(resumed, 10, 0), progressAt(resumed, 22, 0)], [0.25, 22 / 40]);
  });

  it('the progress of a run continues from its value when the run is resumed with a higher limit', () => {
    const resumed = { ...fresh, progressBefore: 0.5, stepBefore: 20, maxSteps: 100 };
    assertClose([progressAt(resumed, 20, 0), progressAt(resumed, 60, 0)], [0.5, 0.75]);
  });

  it('the progress of a run is 1 when the last step has passed', () => {
    const over = { ...fresh, progressBefore: 1, stepBefore: 40, maxSteps: 40 };
    assert.equal(progressAt(over, 40, 0), 1);
  });
});
