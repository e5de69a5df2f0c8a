import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { leastSeconds } from '../../../tools/simulate/bound.js';
import { simulate } from '../../../tools/simulate/loop.js';
import type { Setting } from '../../../tools/simulate/policies.js';
import type { Policy } from '../../../tools/simulate/policies.js';
import type { Trace } from '../../../tools/simulate/trace.js';

const setting: Setting = {
  groupsPerBatch: 1,
  groupSize: 1,
  numMinibatches: 1,
  slots: 8,
  stepSeconds: 10,
  publishSeconds: 0,
  scoreSeconds: 0,
  steps: 4,
};

describe('the least seconds in which groups can be trained', () => {
  it('the bound by training has the shortest group before the first step', () => {
    assert.equal(leastSeconds(setting, 3, [[1], [2], [3], [4]]), 41);
  });

  it('the bound by sampling has all answers in the slots before the last minibatch', () => {
    const groups = Array.from({ length: 4 }, () => [60]);
    assert.equal(leastSeconds({ ...setting, slots: 2 }, 3, groups), 130);
    assert.equal(leastSeconds({ ...setting, slots: 2, scoreSeconds: 1 }, 3, groups), 131);
  });

  it('the bound by the tail spreads each long answer over as many steps as its group may be old', () => {
    // Each of the four steps ends 10 + 40 after the step two before it: two chains of two.
    const groups = Array.from({ length: 4 }, () => [40]);
    assert.equal(leastSeconds(setting, 1, groups), 100);
    assert.equal(leastSeconds(setting, 0, groups), 200); // synchronous
    assert.equal(leastSeconds(setting, 0, [[40], [1], [1], [1]]), 50 + 3 * 11);
  });

  it('the bound by the tail puts long groups into one step', () => {
    const twoGroups = { ...setting, groupsPerBatch: 2, steps: 2 };
    assert.equal(leastSeconds(twoGroups, 0, [[40], [1], [1], [40]]), 50 + 11);
  });

  it('no tail delays training when any age may be trained on', () => {
    const groups = Array.from({ length: 4 }, (_, i) => [i === 0 ? 5 : 30]);
    assert.equal(leastSeconds(setting, Infinity, groups), 45);
  });

  it('no order of the tickets trains within the bound sooner', () => {
    let tight = 0;
    const cases = fc
      .record({
        minibatchSize: fc.integer({ min: 1, max: 2 }),
        numMinibatches: fc.integer({ min: 1, max: 2 }),
        slots: fc.integer({ min: 1, max: 16 }),
        stepSeconds: fc.constantFrom(1, 4),
        publishSeconds: fc.constantFrom(0, 1, 6),
        scoreSeconds: fc.constantFrom(0, 2),
        steps: fc.integer({ min: 1, max: 6 }),
        bound: fc.integer({ min: 0, max: 3 }),
        window: fc.constantFrom<Policy['window']>('wait', 'drop', 'tokens'),
        isIssuedWhenStarted: fc.boolean(),
        lengths: fc.array(
          fc.array(fc.constantFrom(1, 2, 3, 10, 40), { minLength: 2, maxLength: 2 }),
          {
            minLength: 24,
            maxLength: 24,
          },
        ),
        keys: fc.array(fc.nat(), { minLength: 24, maxLength: 24 }),
      })
      .map(({ minibatchSize, ...rest }) => ({
        ...rest,
        groupSize: 2,
        groupsPerBatch: minibatchSize * rest.numMinibatches,
      }));
    fc.assert(
      fc.property(cases, ({ bound, window, isIssuedWhenStarted, lengths, keys, ...given }) => {
        const trace = {
          answersTo: (problem: number) => lengths[problem % lengths.length]!,
        } as unknown as Trace;
        const tickets = given.steps * given.groupsPerBatch;
        const problems = Array.from({ length: tickets }, (_, i) => i).sort(
          (a, b) => keys[a]! - keys[b]!,
        );
        const isAdopting = window === 'tokens';
        const policy = { window, bound, isIssuedWhenStarted, isAdopting, problems };
        const outcome = simulate(given, policy, trace);
        const oldest = window === 'tokens' ? Infinity : bound;
        const least = leastSeconds(given, oldest, outcome.trained);
        assert(outcome.seconds >= least - 1e-9, `${outcome.seconds} s, at least ${least}`);
        if (outcome.seconds <= least + 1e-9) tight += 1;
      }),
      { numRuns: 2_000 },
    );
    assert(tight > 20, `the bound was reached ${tight} times`); // otherwise a weaker bound would pass
  });
});
