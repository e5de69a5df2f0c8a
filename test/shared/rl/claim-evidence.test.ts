import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createRandom } from '../../../shared/base/random.js';
import {
  claimedMass,
  claimEvidence,
  evidenceAgainstPolicy,
  evidenceAgainstUniform,
} from '../../../shared/rl/claim-evidence.js';

const proof = Math.log(1e9); // one false alarm in 10⁹

/** A distribution over 40 tokens; the larger the spread, the surer it is. */
function distribution(seed: string, spread: number): number[] {
  const random = createRandom(seed);
  const weights = Array.from({ length: 40 }, () => Math.exp(spread * (random.next() - 0.5)));
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return weights.map((weight) => weight / sum);
}

/** Rollouts of 16 × 20 tokens drawn from `truth`, and their log probabilities by any distribution. */
function drawn(truth: readonly number[], seed: string) {
  const random = createRandom(seed);
  const draw = () => {
    let rest = random.next();
    return Math.max(
      0,
      truth.findIndex((chance) => (rest -= chance) < 0),
    );
  };
  const tokens = Array.from({ length: 16 }, () => Array.from({ length: 20 }, draw));
  return (by: readonly number[]) => tokens.map((row) => row.map((token) => Math.log(by[token]!)));
}

const pairs = (behavior: number[][], current: number[][]) =>
  behavior.map((row, i) => ({ behavior: row, current: current[i]! }));
const claims = (rows: number[][]) => rows.map((row) => ({ behaviorLogprobs: row }));

describe('the evidence of tokens against the probabilities that are claimed for them', () => {
  it('the evidence is 0 when the claims equal the policy, and without tokens', () => {
    assert.equal(claimEvidence([[0, 0], [0]]), 0);
    assert.equal(claimEvidence([]), 0);
  });

  it('the evidence exceeds ln(1/α) for an honest actor at most once in 1/α groups, however far the policy has moved', () => {
    const evidences = Array.from({ length: 400 }, (_, i) => {
      const truth = distribution(`before ${i}`, 6);
      const moved = distribution(`after ${i}`, i % 2 === 0 ? 6 : 0.5); // another policy
      const logprobs = drawn(truth, `tokens ${i}`);
      return evidenceAgainstPolicy(pairs(logprobs(truth), logprobs(moved)));
    });
    // By Markov's inequality 4 of 400 may exceed ln 100, and 40 ln 10.
    assert(evidences.filter((evidence) => evidence > Math.log(100)).length <= 4);
    assert(evidences.filter((evidence) => evidence > Math.log(10)).length <= 40);
  });

  it('the evidence does not grow with small steps of the policy', () => {
    const evidences = Array.from({ length: 400 }, (_, i) => {
      const truth = distribution(`before ${i}`, 3);
      const nudge = createRandom(`nudge ${i}`);
      const weights = truth.map((chance) => chance * Math.exp(0.2 * (nudge.next() - 0.5)));
      const sum = weights.reduce((total, weight) => total + weight, 0);
      const moved = weights.map((weight) => weight / sum);
      const logprobs = drawn(truth, `tokens ${i}`);
      return evidenceAgainstPolicy(pairs(logprobs(truth), logprobs(moved)));
    });
    assert(evidences.filter((evidence) => evidence > Math.log(100)).length <= 4);
  });

  it('the evidence is a proof against claims that are too low by a fifth of a nat if the policy moves less', () => {
    const truth = distribution('truth', 3);
    const moved = truth.map((chance, token) => (token % 2 === 0 ? 1.1 : 0.9) * chance);
    const logprobs = drawn(truth, 'tokens');
    const low = logprobs(truth).map((row) => row.map((logprob) => logprob - 0.2));
    assert(evidenceAgainstPolicy(pairs(low, logprobs(moved))) > proof);
  });

  it('the evidence is a proof against a single token out of 320', () => {
    const rows = Array.from({ length: 16 }, () => new Array<number>(20).fill(0));
    rows[7]![3] = 30;
    assert(claimEvidence(rows) > proof);
    rows[7]![3] = 1_000; // far beyond what a float holds as a ratio
    assert(claimEvidence(rows) > 900 && Number.isFinite(claimEvidence(rows)));
  });
});

describe('the evidence of tokens that hide a false claim', () => {
  const hiding = (tokens: number) => {
    const row = new Array<number>(tokens).fill(-1); // against which the likelihood ratio alone proves nothing
    row[3] = 30;
    return claimEvidence([row]);
  };

  it('the evidence is a proof against one false claim among many that are too high', () => {
    // The bet of about one token: w·e^30 once, and 1 - w + w/e for each of the others.
    assert(hiding(320) > proof && hiding(320) < 30 - Math.log(320));
  });

  it('the evidence is finite for any number of tokens', () => {
    assert(claimEvidence([new Array<number>(4_000).fill(20)]) > 70_000);
    const low = claimEvidence([new Array<number>(40_000).fill(-20)]);
    assert(Number.isFinite(low) && low < 0);
  });
});

describe('the evidence without computed logprobs', () => {
  const rows = (logprob: number) =>
    claims(Array.from({ length: 16 }, () => new Array<number>(20).fill(logprob)));

  it('the evidence without computed logprobs is a proof against logprobs of -50, also for the largest vocabularies', () => {
    assert(evidenceAgainstUniform(rows(-50), 100) > proof);
    assert(evidenceAgainstUniform(rows(-50), 152_000) > proof);
  });

  it('the evidence without computed logprobs is a proof against a mean below that of the uniform distribution, and not above', () => {
    assert(evidenceAgainstUniform(rows(-Math.log(100) - 0.1), 100) > proof);
    assert(evidenceAgainstUniform(rows(-Math.log(100)), 100) < 1);
  });

  it('the evidence without computed logprobs is a proof against one very unlikely token', () => {
    const one = rows(-1);
    one[3]!.behaviorLogprobs[5] = -50;
    assert(evidenceAgainstUniform(one, 100) > proof);
    one[3]!.behaviorLogprobs[5] = -15; // some token of 40 groups is that rare
    assert(evidenceAgainstUniform(one, 100) < proof);
  });

  it('the evidence without computed logprobs stays low for honest actors, whatever their distribution', () => {
    for (const spread of [0, 0.1, 3, 30, 300]) {
      const truth = distribution(`spread ${spread}`, spread);
      const evidence = evidenceAgainstUniform(claims(drawn(truth, 'tokens')(truth)), 40);
      assert(evidence < Math.log(10), `${spread}: ${evidence}`);
    }
  });
});

describe('the probability that a group claims for one position', () => {
  const rollout = (
    tokens: number[],
    chances: number[],
    versions: [number, number][] = [[0, 2]],
  ) => ({
    tokens,
    behaviorLogprobs: chances.map(Math.log),
    versions,
  });
  const close = (mass: number, expected: number) => {
    assert(Math.abs(mass - expected) < 1e-9, String(mass));
  };

  it('the claimed probability is the sum over the tokens that were drawn there, each counted once', () => {
    close(
      claimedMass([
        rollout([1, 5], [0.5, 0.2]),
        rollout([1, 6], [0.5, 0.3]),
        rollout([2, 7], [0.25, 1]),
      ]),
      0.75, // of the first token; after 1 it is half
    );
    close(claimedMass([rollout([1, 5], [0.5, 0.2]), rollout([2, 6], [0.25, 0.3])]), 0.75);
  });

  it('the claimed probability is 2 where two rollouts are claimed to be certain and differ', () => {
    close(claimedMass([rollout([1, 5], [1, 1]), rollout([2, 5], [1, 1])]), 2);
    close(claimedMass([rollout([1, 5], [1, 1]), rollout([1, 6], [1, 1])]), 2);
  });

  it('the claimed probability does not compare rollouts after they diverge, nor across versions', () => {
    close(claimedMass([rollout([1, 5], [0.5, 1]), rollout([2, 6], [0.5, 1])]), 1);
    const [older, newer]: [number, number][][] = [[[0, 2]], [[1, 2]]];
    close(claimedMass([rollout([1, 5], [1, 1], older), rollout([2, 5], [1, 1], newer)]), 1);
    const changed: [number, number][] = [
      [0, 1],
      [1, 1],
    ];
    close(claimedMass([rollout([1, 5], [1, 1], older), rollout([1, 6], [1, 1], changed)]), 1);
  });
});
