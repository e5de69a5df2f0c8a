import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  entropyCoefficient,
  entropyTerms,
  klTerms,
  tokenMean,
} from '../../../shared/rl/token-terms.js';
import { assertClose } from './close.js';

describe('the KL terms of two rollouts', () => {
  it('the KL terms are the distance of each token from the mean cost', () => {
    // Costs 1/2 and 0, and 1: their mean is 1/2.
    const terms = klTerms(2, [[-1, -2], [-1]], [[-1.5, -2], [-2]]);
    assertClose(terms[0]!, [0, 1]);
    assertClose(terms[1]!, [-1]);
  });

  it('the KL terms refuse a rollout with another number of base logprobs than tokens', () => {
    assert.throws(() => klTerms(1, [[-1]], [[-1, -2]]), /rollout 0 has 1 logprobs, 2 of base/);
  });
});

describe('the entropy terms', () => {
  it('the entropy terms reward tokens that are less likely than the others', () => {
    const terms = entropyTerms(0.5, [[-1, -3], [-2]]);
    assertClose(terms[0]!, [-0.5, 0.5]);
    assertClose(terms[1]!, [0]);
  });

  it('the entropy terms are those of KL to a uniform base, whatever its size', () => {
    const behavior = [[-1, -3], [-2]];
    const uniform = behavior.map((tokens) => tokens.map(() => -Math.log(64)));
    klTerms(0.5, behavior, uniform).forEach((term, i) => {
      assertClose(term, entropyTerms(0.5, behavior)[i]!);
    });
  });

  it('the entropy terms give the gradient of the entropy in expectation', () => {
    // Three tokens with logits θ: d log π(a) / dθ_k = 1[a = k] - π_k.
    const theta = [0.2, -1, 0.7];
    const softmax = (logits: readonly number[]): number[] => {
      const weights = logits.map(Math.exp);
      return weights.map((weight) => weight / weights.reduce((a, b) => a + b));
    };
    const entropy = (logits: readonly number[]): number =>
      softmax(logits).reduce((sum, p) => sum - p * Math.log(p), 0);
    const policy = softmax(theta);
    const baseline = 0.31; // any will do
    const expected = theta.map((_, k) =>
      policy.reduce((sum, p, a) => {
        const score = Number(a === k) - policy[k]!;
        return sum + p * (baseline - Math.log(p)) * score;
      }, 0),
    );
    const numeric = theta.map((_, k) => {
      const at = (step: number) => entropy(theta.map((value, i) => value + step * Number(i === k)));
      return (at(1e-5) - at(-1e-5)) / 2e-5;
    });
    assertClose(expected, numeric, 1e-8);
  });
});

describe('the entropy coefficient', () => {
  it('the entropy coefficient is constant without a target', () => {
    assert.equal(entropyCoefficient(0.1, undefined, 5), 0.1);
  });

  it('the entropy coefficient is 0 above the target and grows to the full one as the entropy vanishes', () => {
    const at = (entropy: number) => entropyCoefficient(0.1, 0.4, entropy);
    assertClose([at(0.5), at(0.4), at(0.3), at(0)], [0, 0, 0.025, 0.1]);
  });
});

describe('the mean over tokens', () => {
  it('the mean over tokens weighs a long rollout more', () => {
    assert.equal(tokenMean([[1, 1, 1], [5]]), 2);
    assert.equal(tokenMean([]), 0);
  });
});
