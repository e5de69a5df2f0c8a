import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  bootstrapMean,
  halfTInterval,
  pairedDifference,
  type BootstrapOptions,
} from '../../../tools/sweep/bootstrap.js';
import { createRandom, type Random } from '../../../shared/base/random.js';
import { assertClose } from '../../shared/rl/close.js';

/** Draws these numbers, one after the other. */
function scripted(draws: readonly number[]): Random {
  let next = 0;
  const int = () => draws[next++]!;
  return { int, next: int, shuffle: (items) => [...items] };
}

const options = (over: Partial<BootstrapOptions> = {}): BootstrapOptions => ({
  resamples: 2_000,
  confidence: 0.95,
  random: createRandom('test'),
  ...over,
});

const rounded = (values: object) =>
  Object.values(values).map((value: number) => Number(value.toFixed(12)));

describe('the bootstrap of a mean', () => {
  it('the bootstrap of a mean draws problems with replacement: worked by hand for four resamples of three problems', () => {
    // Problems score 0, 0.5, 1 in the mean of two seeds.
    const scores = [
      [0, 0, 1],
      [0, 1, 1],
    ];
    const draws = [
      [0, 0, 0],
      [2, 2, 1],
      [0, 1, 2],
      [1, 1, 1],
    ].flat(); // means 0, 5/6, 1/2, 1/2
    const estimate = bootstrapMean(
      scores,
      options({ resamples: 4, confidence: 0.5, random: scripted(draws) }),
    );
    // Sorted 0, 1/2, 1/2, 5/6; the quarters lie at places 0.75 and 2.25.
    assertClose(Object.values(estimate), [0.5, 0.375, 0.5 + 0.25 / 3]);
  });

  it('the bootstrap of a mean is the same for the same seed', () => {
    const scores = [Array.from({ length: 50 }, (_, i) => (i * 7) % 3)];
    const once = bootstrapMean(scores, options());
    assert.deepEqual(bootstrapMean(scores, options()), once);
    assert.notDeepEqual(bootstrapMean(scores, options({ random: createRandom(2) })), once);
  });

  it('the bootstrap of a mean agrees with the normal approximation for many problems', () => {
    const scores = [Array.from({ length: 1_024 }, (_, i) => Number(i % 4 === 0))]; // 1/4 solved
    const { mean, low, high } = bootstrapMean(scores, options());
    const deviation = Math.sqrt((0.25 * 0.75) / 1_024);
    assert.equal(mean, 0.25);
    assertClose([low, high], [0.25 - 1.96 * deviation, 0.25 + 1.96 * deviation], 0.003);
  });

  it('the bootstrap of a mean refuses values that are not a table of scores', () => {
    assert.throws(() => bootstrapMean([], options()), /there are no scores/);
    assert.throws(() => bootstrapMean([[1], [1, 0]], options()), /runs of 1 and of 2 problems/);
  });
});

describe('the interval of a mean over seeds', () => {
  it("the interval over seeds is that of Student's t: worked by hand for three values", () => {
    // Mean 2, variance 1, quantile 4.303 with two degrees of freedom.
    const expected = 4.303 / Math.sqrt(3);
    assert(Math.abs(halfTInterval([1, 2, 3])! - expected) < 1e-12);
    assert.equal(halfTInterval([5]), undefined);
  });

  it('the interval over seeds covers the true mean about as often as it claims to', () => {
    const random = createRandom('t');
    const normal = () =>
      Math.sqrt(-2 * Math.log(1 - random.next())) * Math.cos(2 * Math.PI * random.next());
    let covered = 0;
    for (let round = 0; round < 4_000; round++) {
      const values = [normal(), normal(), normal()];
      const center = values.reduce((sum, value) => sum + value) / 3;
      if (Math.abs(center) <= halfTInterval(values)!) covered += 1;
    }
    assert(Math.abs(covered / 4_000 - 0.95) < 0.015, String(covered));
  });
});

describe('a paired difference', () => {
  // Problems of very different difficulty, all solved a tenth more often.
  const baseline = [Array.from({ length: 200 }, (_, i) => (i % 10) / 10)];
  const better = baseline.map((row) => row.map((score) => score + 0.1));

  it('a paired difference is certain if each problem gains the same, however different the problems are', () => {
    const { byProblems, bySeeds } = pairedDifference(better, baseline, options());
    assert.deepEqual(rounded(byProblems), [0.1, 0.1, 0.1]);
    assert.equal(bySeeds, undefined); // one pair says nothing of other seeds
    const { low, high } = bootstrapMean(better, options());
    assert(high - low > 0.05); // without pairing it would not be
  });

  it('a paired difference pairs runs by their seed', () => {
    const lucky = [
      [0, 1],
      [1, 0],
    ];
    const alsoLucky = [
      [0.25, 1.25],
      [1.25, 0.25],
    ];
    const { byProblems, bySeeds } = pairedDifference(alsoLucky, lucky, options());
    for (const found of [byProblems, bySeeds!])
      assert.deepEqual(rounded(found), [0.25, 0.25, 0.25]);
  });

  it("a paired difference has the interval of Student's t over the pairs, and none narrower than that over problems", () => {
    const flat = (share: number) => Array.from({ length: 100 }, () => share);
    const zero = [flat(0), flat(0), flat(0)];
    const apart = pairedDifference([flat(0.1), flat(0.2), flat(0.3)], zero, options());
    const half = (4.303 * 0.1) / Math.sqrt(3); // as worked by hand above
    assertClose(Object.values(apart.bySeeds!), [0.2, 0.2 - half, 0.2 + half]);
    const mixed = Array.from({ length: 100 }, (_, i) => i % 2);
    const alike = pairedDifference([mixed, mixed, mixed], zero, options());
    assert.deepEqual(alike.bySeeds, alike.byProblems);
    assert(alike.byProblems.high - alike.byProblems.low > 0.1);
  });

  it('a paired difference covers the true value about as often as it claims to', () => {
    const random = createRandom('coverage');
    const draw = (share: number) => [
      Array.from({ length: 200 }, () => Number(random.next() < share)),
    ];
    let covered = 0;
    for (let i = 0; i < 200; i++) {
      const { low, high } = pairedDifference(
        draw(0.6),
        draw(0.5),
        options({ resamples: 300 }),
      ).byProblems;
      if (low <= 0.1 && 0.1 <= high) covered += 1;
    }
    assert(covered >= 180 && covered <= 198, `${covered} of 200 intervals of 95 %`);
  });

  it('a paired difference refuses runs or problems without a partner', () => {
    assert.throws(() => pairedDifference([[1]], [], options()), /1 runs cannot be paired with 0/);
    assert.throws(() => pairedDifference([[1]], [[1, 0]], options()), /1 problems .* with 2/);
  });
});
