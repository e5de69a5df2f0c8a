import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  signalProbability,
  signalShares,
  withGroup,
  withStepGroups,
} from '../../../shared/rl/signal.js';
import { assertClose } from './close.js';

describe('the probability that a group of two has signal', () => {
  const at = (rollouts: number, correct: number) => signalProbability({ rollouts, correct }, 2);

  it('the probability of signal is 1/4 for an untried problem', () => {
    // Beta(1/2, 1/2): E[p²] = E[(1 - p)²] = (0.5·1.5) / (1·2) = 3/8.
    assertClose([at(0, 0)], [1 / 4]);
  });

  it('the probability of signal follows from the posterior', () => {
    // Beta(2.5, 0.5): E[p²] = 2.5·3.5 / (3·4), E[(1 - p)²] = 0.5·1.5 / (3·4).
    assertClose([at(2, 2)], [1 - 8.75 / 12 - 0.75 / 12]);
  });

  it('the probability of signal is largest in the middle, and the same for as often right as wrong', () => {
    assert(at(16, 8) > at(16, 12) && at(16, 12) > at(16, 16));
    assertClose([at(16, 3)], [at(16, 13)]);
  });
});

describe('the counts of a problem', () => {
  it('the counts of a problem halve with every later group', () => {
    const first = withGroup(undefined, { rollouts: 4, correct: 1 });
    assert.deepEqual(first, { rollouts: 4, correct: 1 });
    assert.deepEqual(withGroup(first, { rollouts: 4, correct: 4 }), { rollouts: 6, correct: 4.5 });
  });
});

describe('the shares of difficulties', () => {
  it('difficulties without a group have the shares of their problems', () => {
    const shares = signalShares([
      { problems: 30, counts: undefined },
      { problems: 10, counts: undefined },
    ]);
    assertClose(shares, [0.75, 0.25]);
  });

  it('a difficulty has a share in proportion to its groups with signal, beside a tenth that goes by its problems', () => {
    const shares = signalShares([
      { problems: 10, counts: { groups: 9, withSignal: 5.5 } }, // (5.5 + 1/2) / 10
      { problems: 30, counts: { groups: 99, withSignal: 19.5 } }, // (19.5 + 1/2) / 100
    ]);
    assertClose(shares, [0.025 + 0.9 * 0.5, 0.075 + 0.9 * 0.5]);
  });

  it('about the latest 256 groups of a difficulty count, and those of one step alike', () => {
    const one = withStepGroups(undefined, { groups: 1, withSignal: 1 });
    assertClose([one.groups, one.withSignal], [1, 1]);
    assert.deepEqual(withStepGroups(one, { groups: 0, withSignal: 0 }), one);
    let result = one;
    for (let i = 0; i < 100; i++) result = withStepGroups(result, { groups: 80, withSignal: 20 });
    assert(Math.abs(result.groups - 256) < 1e-9);
    assert(Math.abs(result.withSignal - 64) < 1e-9);
    result = withStepGroups(result, { groups: 256, withSignal: 0 });
    assert(Math.abs(result.withSignal / result.groups - 0.25 / Math.E) < 0.001);
  });
});
