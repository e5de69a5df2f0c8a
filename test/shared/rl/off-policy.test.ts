import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  ksDistance,
  offPolicyStats,
  offPolicyStatsByStaleness,
  unbounded,
} from '../../../shared/rl/off-policy.js';
import { assertClose } from './close.js';

const log2 = Math.log(2);
// One rollout of three tokens with ratios 1, 2 and 1/2.
const rollout = { behavior: [-1, -2, -3], current: [-1, -2 + log2, -3 - log2] };

describe('off-policy statistics of ratios 1, 2, 1/2', () => {
  const stats = offPolicyStats([rollout], { low: 0.8, high: 1.2 })!;

  it('the off-policy statistics estimate the divergence in three ways', () => {
    assertClose([stats.klV1], [(0 - log2 + log2) / 3]);
    assertClose([stats.klV2], [(0.5 * log2 ** 2 * 2) / 3]);
    // r - 1 - ln r: 0, 1 - ln 2, -1/2 + ln 2.
    assertClose([stats.klK3], [0.5 / 3]);
  });

  it('the off-policy statistics give the effective sample size as a share', () => {
    assertClose([stats.essRatio], [3.5 ** 2 / (3 * (1 + 4 + 0.25))]);
  });

  it('the off-policy statistics give the entropy of the samples and the shares outside the bounds', () => {
    assertClose(
      [stats.sampledEntropy, stats.belowShare, stats.aboveShare, stats.tokens],
      [2, 1 / 3, 1 / 3, 3],
    );
    assertClose([stats.ratio.p50], [1]);
  });
});

describe('off-policy statistics', () => {
  it('the off-policy statistics of a policy that trains on its own samples show no divergence', () => {
    const same = { behavior: [-1, -2], current: [-1, -2] };
    const stats = offPolicyStats([same], unbounded)!;
    assert.deepEqual([stats.klV1, stats.klV2, stats.klK3, stats.essRatio], [0, 0, 0, 1]);
    const { belowShare, aboveShare } = offPolicyStats([same], { low: 1, high: 1 })!;
    assert.deepEqual([belowShare, aboveShare], [0, 0]); // the bounds belong to the range
  });

  it('the off-policy statistics stay finite when one token is broken', () => {
    const broken = { behavior: [-1, -500], current: [-1, -0.1] };
    const stats = offPolicyStats([broken], unbounded)!;
    assert.equal(stats.ratio.p99 < Math.exp(20), true);
    assertClose([stats.klV2], [0.5 * 0.5 * 20 ** 2]);
    const lost = offPolicyStats([{ behavior: [-1, -0.1], current: [-1, -500] }], unbounded)!;
    assertClose([lost.klV1, lost.klV2], [10, 0.5 * 0.5 * 20 ** 2]);
  });

  it('the off-policy statistics are reported by staleness, in rising order', () => {
    const pairs = (behavior: number[], current: number[]) => ({
      behavior: Float32Array.from(behavior),
      current: Float32Array.from(current),
    });
    const mixed = {
      ...pairs([-1, -1, -1, -1], [-1 + log2, -1, -1, -1]),
      versions: [
        [5, 1],
        [7, 3],
      ] as const,
    };
    const old = { ...pairs([-1], [-1 + log2]), versions: [[5, 1]] as const };
    const byStaleness = offPolicyStatsByStaleness([old, mixed], (by) => 7 - by, unbounded);
    assert.deepEqual([...byStaleness.keys()], [0, 2]);
    assert.deepEqual([byStaleness.get(0)!.tokens, byStaleness.get(0)!.klV1], [3, 0]);
    assert.equal(byStaleness.get(2)!.tokens, 2);
    assertClose([byStaleness.get(2)!.klV1], [-Math.fround(log2)], 1e-6);
  });

  it('the off-policy statistics are undefined without tokens and refuse arrays that do not match', () => {
    assert.equal(offPolicyStats([], unbounded), undefined);
    assert.throws(() => offPolicyStats([{ behavior: [-1], current: [] }], unbounded), /1 behavior/);
  });
});

describe('the distance between two length distributions', () => {
  const counts = (...lengths: number[]) => {
    const map = new Map<number, number>();
    for (const length of lengths) map.set(length, (map.get(length) ?? 0) + 1);
    return map;
  };

  it('the distance of two length distributions is 0 for equal shares, whatever the totals', () => {
    assert.equal(ksDistance(counts(1, 2), counts(1, 1, 2, 2)), 0);
  });

  it('the distance of two length distributions is the largest gap of the cumulative shares', () => {
    // At length 1: 1/2 against 1/4; at 2: 1 against 1/2.
    assert.equal(ksDistance(counts(1, 2), counts(1, 2, 3, 4)), 0.5);
  });

  it('the distance of two length distributions is 1 when all of one is shorter, and 0 when either is empty', () => {
    assert.equal(ksDistance(counts(1, 2), counts(3)), 1);
    assert.equal(ksDistance(counts(), counts(3)), 0);
  });
});
