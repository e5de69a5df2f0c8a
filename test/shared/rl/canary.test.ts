import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  boundOfUndrawn,
  brokenDifference,
  choosePlaces,
  compareCanary,
  logprobBands,
} from '../../../shared/rl/canary.js';

const expected = Float32Array.of(-1, -2, -0.5, -3);
const band = { largest: 0.125, mean: 0.07 };
const scores = (logprobs: number[], bounds: number[] = []) => ({
  logprobs: Float32Array.from(logprobs),
  isBound: logprobs.map((_, i) => bounds.includes(i)),
});

describe('comparing a canary', () => {
  it('a canary within the band is reproduced, and one beyond it is not, with the largest difference and its place', () => {
    const near = compareCanary(expected, scores([-1, -2.125, -0.5, -3]), band);
    const small = { difference: 0.125, place: 1, mean: 0, compared: 4 };
    assert.deepEqual(near, { isReproduced: true, ...small });
    const far = compareCanary(expected, scores([-1, -2, -0.25, -3]), band);
    const large = { difference: 0.25, place: 2, mean: 0, compared: 4 };
    assert.deepEqual(far, { isReproduced: false, ...large });
    const everywhere = compareCanary(expected, scores([-1.125, -2.125, -0.375, -3.125]), band);
    assert.deepEqual([everywhere.isReproduced, everywhere.difference], [false, 0.125]);
  });

  it('a canary whose mean difference is that of the band is reproduced, and one just beyond it is not', () => {
    const all = scores([-1.125, -2.125, -0.375, -3.125]);
    const isReproduced = (mean: number) =>
      compareCanary(expected, all, { ...band, mean }).isReproduced;
    assert.deepEqual([isReproduced(0.125), isReproduced(0.124)], [true, false]);
  });

  it('a logprob that is not finite, or missing, is never within the band', () => {
    for (const broken of [
      [-1, NaN, -0.5, -3],
      [-1, -2, -0.5, -Infinity],
      [-1, -2, -0.5],
    ]) {
      const found = compareCanary(expected, scores(broken), { largest: 1e5, mean: Infinity });
      assert.deepEqual([found.isReproduced, found.difference], [false, brokenDifference]);
    }
  });

  it('a bound differs only where the expected logprob is above it', () => {
    const below = compareCanary(expected, scores([-1, -1.25, -0.5, -3], [1]), band);
    assert.deepEqual([below.isReproduced, below.difference, below.compared], [true, 0, 3]);
    const above = compareCanary(expected, scores([-1, -2, -1.5, -3], [2]), band);
    assert.deepEqual([above.isReproduced, above.difference, above.place], [false, 1, 2]);
  });

  it('a sampler that shows fewer than half of the tokens proves nothing', () => {
    const shown = (bounds: number[]) =>
      compareCanary(expected, scores([-1, -1, -0.5, -1], bounds), { largest: 2, mean: 2 })
        .isReproduced;
    assert.deepEqual([shown([1, 3]), shown([0, 1, 3])], [true, false]);
  });
});

describe('comparing a canary with earlier versions', () => {
  const wide = { largest: 20, mean: 0.2 };
  const earlier = [
    { version: 6, logprobs: Float32Array.of(-1.125, -2.125, -0.375, -3.125) },
    { version: 0, logprobs: Float32Array.of(-2, -1, -1.5, -4) },
  ];

  it('a sampler more than three times as close to an earlier version is refused, though within the band, and the version is named', () => {
    const off = (share: number) =>
      scores(Array.from(expected, (own, i) => own + share * (earlier[0]!.logprobs[i]! - own)));
    const served = compareCanary(expected, off(1), wide, earlier);
    assert.deepEqual([served.isReproduced, served.closerTo, served.mean], [false, 6, 0.125]);
    const nearly = compareCanary(expected, off(0.76), wide, earlier);
    assert.deepEqual([nearly.isReproduced, nearly.closerTo], [false, 6]);
    const between = compareCanary(expected, off(0.74), wide, earlier);
    assert.deepEqual([between.isReproduced, between.closerTo], [true, undefined]);
    assert(compareCanary(expected, off(1), wide).isReproduced, 'without them it passes');
  });

  it('a sampler that computes what it should passes, however close the versions are', () => {
    const same = [{ version: 6, logprobs: expected }];
    for (const logprobs of [[...expected], [-1.01, -1.99, -0.49, -3.02]]) {
      const found = compareCanary(expected, scores(logprobs), wide, [...same, ...earlier]);
      assert.deepEqual([found.isReproduced, found.closerTo], [true, undefined]);
    }
  });

  it('the largest quarter counts for neither version', () => {
    const alike = Float32Array.of(-1, -2, -0.5, -9);
    const found = compareCanary(expected, scores([-1.1, -2.1, -0.6, -9]), wide, [
      { version: 6, logprobs: alike },
    ]);
    assert(found.isReproduced);
  });
});

describe('a logprob that was reported with fewer bits', () => {
  /** To the 8 bits of bfloat16's significand. */
  const rounded = (logprob: number) => {
    const unit = 2 ** (Math.floor(Math.log2(-logprob)) - 7);
    return Math.round(logprob / unit) * unit;
  };
  const isReproduced = (logprobs: number[], off: number) =>
    compareCanary(
      Float32Array.from(logprobs, rounded),
      scores(logprobs.map((each) => each + off)),
      logprobBands.bf16,
    ).isReproduced;
  const improbable = [-11.97, -11.28, -12.09, -10.71];

  it('the rounding of improbable tokens is not held against a sampler, and a larger difference is', () => {
    assert(isReproduced(improbable, 0));
    assert(!isReproduced(improbable, 0.19));
  });

  it('probable tokens are compared as before', () => {
    assert(isReproduced([-1, -2, -0.5, -1.5], 0.099));
    assert(!isReproduced([-1, -2, -0.5, -1.5], 0.101));
  });
});

describe('the tokens of a canary', () => {
  it('tokens that are neither certain nor improbable are preferred, and improbable ones come last', () => {
    const logprobs = [-0.0001, -1, -9, -2.5, -0.1, -5];
    const candidates = logprobs.map((logprob, index) => ({ text: 0, index, logprob }));
    const chosen = (count: number) => choosePlaces(candidates, count).map(({ index }) => index);
    assert.deepEqual([chosen(1), chosen(2), chosen(3)], [[1], [1, 3], [1, 3, 4]]);
    assert.deepEqual(
      [chosen(4), chosen(5)],
      [
        [0, 1, 3, 4],
        [0, 1, 3, 4, 5],
      ],
    );
  });

  it('the bound of an undrawn token makes its absence less likely than 1 in 10^12', () => {
    for (const draws of [1, 16, 64, 1_000]) {
      const p = Math.exp(boundOfUndrawn(draws));
      assert(Math.abs(Math.log10((1 - p) ** draws) + 12) < 1e-3, `${draws} draws: ${p}`);
    }
  });
});
