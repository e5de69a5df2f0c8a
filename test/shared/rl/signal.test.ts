import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { signalProbability, withGroup } from '../../../shared/rl/signal.js';
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
