import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { leastSeconds } from '../../../tools/simulate/bound.js';
import { simulate } from '../../../tools/simulate/loop.js';
import type { Setting } from '../../../tools/simulate/policies.js';
import { policies, type PolicyName, policyOf } from '../../../tools/simulate/policies.js';
import { lognormalSeconds, measuredSeconds, Trace } from '../../../tools/simulate/trace.js';

const oneByOne: Setting = {
  groupsPerBatch: 1,
  groupSize: 2,
  numMinibatches: 1,
  slots: 2,
  stepSeconds: 10,
  publishSeconds: 1,
  scoreSeconds: 1,
  steps: 3,
};

describe('the loop in simulated time, worked out by hand', () => {
  it('three steps with one slot for each answer of a group take 34 s', () => {
    // Group 0: sampled 0-3, scored 4, trained 4-14, published 15. Group 1: sampled 3-6, trained 14-24.
    // The law gives the third ticket when version 1 is published: sampled 15-18, scored 19, trained 24-34.
    const trace = new Trace(measuredSeconds([3]), 0);
    const outcome = simulate(oneByOne, { window: 'wait', bound: 1 }, trace);
    assert.equal(outcome.seconds, 34);
    assert.equal(outcome.stepsPerHour, (3 * 3_600) / 34);
    assert.equal(outcome.idleShare, 1 - 30 / 34);
    assert.deepEqual(
      [...outcome.groupStaleness],
      [
        [0, 1],
        [1, 2],
      ],
    );
    assert.deepEqual(
      [...outcome.tokenStaleness],
      [
        [0, 6],
        [1, 12],
      ],
    );
    assert.deepEqual(
      [outcome.droppedShare, outcome.maskedShare, outcome.wastedShare, outcome.lengthDistance],
      [0, 0, 0, 0],
    );
    assert.equal(leastSeconds(oneByOne, 1, outcome.trained), 34); // training never waits
  });

  it('two minibatches of a step are trained as soon as each is full', () => {
    // Both groups are sampled at once, one after the other: trained 3-8 and 8-13.
    const setting = {
      ...oneByOne,
      groupsPerBatch: 2,
      numMinibatches: 2,
      scoreSeconds: 0,
      steps: 1,
    };
    const trace = new Trace(measuredSeconds([3]), 0);
    assert.equal(simulate(setting, { window: 'wait', bound: 0 }, trace).seconds, 13);
  });

  /** One group a step, of one answer; the answers to problem 0 take `first` seconds, the others 2. */
  const withSlowFirst = (first: number) =>
    ({
      answersTo: (problem: number, attempt: number) => [problem === 0 && attempt === 0 ? first : 2],
      predictionError: () => 0,
    }) as unknown as Trace;
  const single = { ...oneByOne, groupSize: 1, publishSeconds: 0, scoreSeconds: 0 };

  it('the policy that drops loses the slow group, and counts what it had sampled', () => {
    // Groups 1 and 2 are trained 2-12 and 14-24. Version 2 makes the slow group of version 0 too old after 24 s; its
    // second attempt is sampled 24-26 and trained 26-36.
    const outcome = simulate(single, { window: 'drop', bound: 1 }, withSlowFirst(100));
    assert.equal(outcome.droppedShare, 1 / 4);
    assert.equal(outcome.wastedShare, 24 / 30);
    assert.deepEqual(
      outcome.trained.map(([seconds]) => seconds),
      [2, 2, 2],
    );
    assert.equal(outcome.seconds, 36);
    assert.equal(outcome.lengthDistance, 1 / 4);
    assert.equal(outcome.tailShare, 0);
  });

  it('the policy that waits trains the slow group at its bound', () => {
    // Group 1 is trained 2-12; then group 0 must be trained, so nothing else is: 100-110, and group 2 110-120.
    const outcome = simulate(single, { window: 'wait', bound: 1 }, withSlowFirst(100));
    assert.equal(outcome.seconds, 120);
    assert.deepEqual(
      outcome.trained.map(([seconds]) => seconds),
      [2, 100, 2],
    );
  });

  it('a bound on tokens masks the beginning of a slow group, and trains its end', () => {
    // Versions 1, 2, … are published at 12, 24, 36. The slow group ends at 30, when version 2 samples it, and is
    // trained as the third step, by version 2: its 12 s of version 0 are masked, 12 of version 1 and 6 of version 2 used.
    const policy = { window: 'tokens', bound: 1, isAdopting: true } as const;
    const outcome = simulate(single, policy, withSlowFirst(30));
    assert.deepEqual(
      outcome.trained.map(([seconds]) => seconds),
      [2, 2, 30],
    );
    assert.equal(outcome.maskedShare, 12 / 34);
    assert.equal(outcome.droppedShare, 0);
    assert.equal(outcome.tokenStaleness.get(0), 2 + 2 + 6);
    assert.equal(outcome.tokenStaleness.get(1), 12);
    assert.equal(outcome.tailShare.toFixed(9), (18 / 30).toFixed(9));
  });

  it('a spare answer ends the group without its slowest answer', () => {
    const trace = { answersTo: () => [2, 50, 3] } as unknown as Trace;
    const setting = { ...single, groupSize: 2, slots: 3, steps: 1 };
    const outcome = simulate(setting, { window: 'wait', bound: 0, spareAnswers: 1 }, trace);
    assert.equal(outcome.seconds, 13);
    assert.deepEqual(outcome.trained, [[2, 3]]);
    assert.equal(outcome.wastedShare, 3 / 8);
    assert.equal(outcome.lengthDistance.toFixed(9), (1 / 3).toFixed(9));
  });
});

const circumstances = fc
  .record({
    minibatchSize: fc.integer({ min: 1, max: 3 }),
    numMinibatches: fc.integer({ min: 1, max: 2 }),
    groupSize: fc.integer({ min: 1, max: 4 }),
    slots: fc.integer({ min: 1, max: 12 }),
    stepSeconds: fc.constantFrom(0.5, 3, 20),
    publishSeconds: fc.constantFrom(0, 1, 7),
    scoreSeconds: fc.constantFrom(0, 0.5),
    steps: fc.integer({ min: 1, max: 12 }),
    bound: fc.integer({ min: 0, max: 4 }),
    sigma: fc.constantFrom(0, 1, 2),
    seed: fc.nat(),
    groupsInFlight: fc.option(fc.integer({ min: 1, max: 8 }), { nil: undefined }),
  })
  .map(({ minibatchSize, bound, sigma, seed, groupsInFlight, ...rest }) => ({
    bound,
    setting: { ...rest, groupsPerBatch: minibatchSize * rest.numMinibatches },
    trace: new Trace(lognormalSeconds(2, sigma), seed),
    options: { groupsInFlight, lookahead: 5, predictionError: 1, spareAnswers: 1 },
  }));
const names = fc.constantFrom(...(Object.keys(policies) as PolicyName[]));

describe('a run issues only tickets that the learner has a use for', () => {
  const batches = { groupsPerBatch: 8, groupSize: 16, stepSeconds: 3.4, steps: 150 };
  const setting = { ...oneByOne, ...batches, publishSeconds: 0.2, scoreSeconds: 0.1 };
  const compared = (bound: number, sigma: number, seconds: number, machines: Partial<Setting>) => {
    const trace = new Trace(lognormalSeconds(seconds, sigma), 0);
    const options = {
      groupsInFlight: undefined,
      lookahead: 1,
      predictionError: 0,
      spareAnswers: 0,
    };
    const given = { bound, setting: { ...setting, ...machines }, trace, options };
    const [before, after] = (['just-in-time', 'paced'] as const).map((name) => {
      const { groupStaleness, ...outcome } = simulate(given.setting, policyOf(name, given), trace);
      const ages = [...groupStaleness].map(([age, groups]) => age * groups);
      const age = ages.reduce((sum, each) => sum + each, 0) / outcome.trained.length;
      return { ...outcome, age };
    });
    return [before!, after!] as const;
  };

  it('where training is the limit, groups are less than half as old, and the learner hardly waits', () => {
    for (const [bound, seconds] of [
      [2, 0.2],
      [8, 2],
    ] as const) {
      const [before, after] = compared(bound, 0.5, seconds, { slots: 256, numMinibatches: 4 });
      assert(after.age < 0.55 * before.age, `${before.age} to ${after.age} of ${bound}`);
      assert(after.idleShare < before.idleShare + 0.02, `idle ${after.idleShare}`);
    }
  });

  it('where sampling or the tail is the limit, nothing is lost', () => {
    for (const [bound, sigma, slots] of [
      [4, 0.5, 64],
      [4, 1, 128],
      [16, 1, 128],
    ] as const) {
      const [before, after] = compared(bound, sigma, 2, { slots });
      assert(after.stepsPerHour > 0.98 * before.stepsPerHour, `${bound} versions, σ ${sigma}`);
    }
  });
});

describe('every policy in simulated time', () => {
  it('no policy trains on a token beyond the bound, and only the one for tokens on such a group', () => {
    let oldGroups = 0;
    fc.assert(
      fc.property(circumstances, names, (given, name) => {
        const policy = policyOf(name, given);
        const outcome = simulate(given.setting, policy, given.trace);
        const oldest = (ages: ReadonlyMap<number, number>) => Math.max(...ages.keys());
        assert(oldest(outcome.tokenStaleness) <= given.bound);
        assert(Math.min(...outcome.groupStaleness.keys()) >= 0);
        if (policy.window !== 'tokens') assert(oldest(outcome.groupStaleness) <= given.bound);
        else if (oldest(outcome.groupStaleness) > given.bound) oldGroups += 1;
        assert.equal(outcome.trained.length, given.setting.steps * given.setting.groupsPerBatch);
      }),
      { numRuns: 300 },
    );
    assert(oldGroups > 0); // otherwise nothing was masked
  });

  it('an exact policy trains every answer', () => {
    fc.assert(
      fc.property(circumstances, names, (given, name) => {
        fc.pre(policies[name].isExact);
        const outcome = simulate(given.setting, policyOf(name, given), given.trace);
        const { droppedShare, maskedShare, wastedShare, lengthDistance, tailShare } = outcome;
        assert.deepEqual([droppedShare, maskedShare, lengthDistance], [0, 0, 0]);
        assert(wastedShare < 1e-9 && tailShare > 1 - 1e-9);
        const { steps, groupsPerBatch, groupSize } = given.setting;
        const all = Array.from({ length: steps * groupsPerBatch }, (_, problem) =>
          given.trace.answersTo(problem, 0, groupSize),
        );
        const sorted = (groups: readonly (readonly number[])[]) =>
          groups.flat().sort((a, b) => a - b);
        assert.deepEqual(sorted(outcome.trained), sorted(all));
      }),
    );
  });

  it('the same seed gives the same outcome, and another seed another one', () => {
    const setting = { ...oneByOne, steps: 20 };
    const run = (seed: number) =>
      simulate(setting, { window: 'drop', bound: 1 }, new Trace(lognormalSeconds(5, 1), seed));
    assert.deepEqual(run(1), run(1));
    assert.notDeepEqual(run(1), run(2));
  });
});
