import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { logprobGap, outsiders, type AuditLimits } from '../../../shared/rl/logprob-audit.js';

const limits: AuditLimits = {
  ...{ window: 4, minGroups: 2, noise: 0.05, factor: 5, alone: 0.5 },
  ...{ proof: 20, maxRefused: 3 },
};
const names = (gaps: Record<string, number[]>) =>
  outsiders(new Map(Object.entries(gaps)), limits).map(({ actor }) => actor);

describe('the gap of a group', () => {
  it('the gap of a group is the mean difference of all its tokens', () => {
    const rollouts = [
      { behavior: [-1, -2], current: [-1.5, -2] },
      { behavior: [-4], current: [-3] },
    ];
    assert.equal(logprobGap(rollouts), 0.5);
    assert.equal(logprobGap([]), 0);
  });
});

describe("the fleet's band", () => {
  it("the fleet's band contains actors that differ only by noise", () => {
    assert.deepEqual(names({ a: [0.04, 0.04], b: [1e-6, 1e-6] }), []);
  });

  it("the fleet's band excludes an actor whose logprobs are of another policy", () => {
    const [outsider, ...more] = outsiders(
      new Map([
        ['honest', [1e-6, 2e-6, 1e-6]],
        ['wrong', [0.3, 0.2, 0.3]],
      ]),
      limits,
    );
    assert.deepEqual(outsider, { actor: 'wrong', gap: 0.3, bound: 0.05, groups: 3 });
    assert.deepEqual(more, []);
  });

  it("the fleet's band is as wide as the precision of the servers, which is the same for all", () => {
    assert.deepEqual(names({ a: [0.08, 0.08], b: [0.09, 0.07], c: [0.3, 0.3] }), []);
    assert.deepEqual(names({ a: [0.08, 0.08], b: [0.09, 0.07], c: [0.45, 0.45] }), ['c']);
  });

  it("the fleet's band excludes an actor only after several groups, and not for a single bad one among them", () => {
    assert.deepEqual(names({ a: [0, 0], b: [2] }), []);
    assert.deepEqual(names({ a: [0, 0], b: [0, 2, 0] }), []);
  });

  it("the fleet's band considers only the newest groups", () => {
    assert.deepEqual(names({ a: [0, 0], b: [2, 2, 2, 0, 0, 0, 0] }), []);
    assert.deepEqual(names({ a: [0, 0], b: [0, 0, 0, 0, 2, 2, 2, 2] }), ['b']);
  });

  it("the fleet's band is absolute for a single actor, and when all the others are broken", () => {
    assert.deepEqual(names({ a: [0.4, 0.4] }), []);
    assert.deepEqual(names({ a: [0.6, 0.6] }), ['a']);
    assert.deepEqual(names({ a: [0.6, 0.6], b: [3, 3] }), ['a', 'b']);
  });
});
