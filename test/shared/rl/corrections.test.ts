import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  type CorrectedTokens,
  correctTokens,
  importanceWeights,
  logRatiosOf,
  maskSides,
  needsProximal,
} from '../../../shared/rl/corrections.js';
import { lossAndGradient } from '../../../shared/rl/losses.js';
import type { Correction } from '../../../shared/rl/objective.js';
import type { LossName } from '../../../shared/rl/losses.js';
import { assertClose } from './close.js';

// Three tokens whose ratios are 1, 4 and 1/2; their product is 2, its cube root 1.26.
const ln2 = Math.log(2);
const behavior = [-1, -2, -1];
const proximal = [-1, -2 + 2 * ln2, -1 - ln2];
const logRatios = logRatiosOf(proximal, behavior);
const advantages = [1, -1, 3];

describe('masks of tokens with ratios 1, 4, 1/2', () => {
  it('the icepop mask keeps the tokens within the bounds, which belong to it', () => {
    assert.deepEqual([...maskSides('icepop', logRatios, { low: 0.4, high: 5 })], [0, 0, 0]);
    assert.deepEqual([...maskSides('icepop', logRatios, { low: 1, high: 3 })], [0, 1, -1]);
    assert.deepEqual([...maskSides('icepop', logRatios, { low: 0.4, high: 1 })], [0, 1, 0]);
  });

  it('the sequence mask judges all tokens by the product of their ratios', () => {
    assert.deepEqual([...maskSides('sequence', logRatios, { low: 0.5, high: 2.1 })], [0, 0, 0]);
    assert.deepEqual([...maskSides('sequence', logRatios, { low: 0.5, high: 1.9 })], [1, 1, 1]);
    assert.deepEqual([...maskSides('sequence', logRatios, { low: 2.1, high: 4 })], [-1, -1, -1]);
  });

  it('the geometric mask judges all tokens by the geometric mean of their ratios', () => {
    assert.deepEqual([...maskSides('geometric', logRatios, { low: 1, high: 1.27 })], [0, 0, 0]);
    assert.deepEqual([...maskSides('geometric', logRatios, { low: 1, high: 1.25 })], [1, 1, 1]);
    assert.deepEqual([...maskSides('geometric', logRatios, { low: 1.27, high: 2 })], [-1, -1, -1]);
  });
});

describe('importance weights of tokens with ratios 1, 4, 1/2', () => {
  it('the importance weights by token are the ratios up to the cap', () => {
    assertClose(importanceWeights('token', logRatios, 3), [1, 3, 0.5]);
  });

  it('the importance weights by sequence are the product up to the cap, on every token', () => {
    assertClose(importanceWeights('sequence', logRatios, 3), [2, 2, 2]);
    assertClose(importanceWeights('sequence', logRatios, 1.5), [1.5, 1.5, 1.5]);
  });

  it('the importance weights stay finite when a logprob is broken', () => {
    const broken = logRatiosOf([-1, -0.1], [-1, -1_000]);
    const weights = [...importanceWeights('sequence', broken, Infinity)];
    assertClose(weights, [Math.exp(20), Math.exp(20)], 1e-3);
  });
});

describe('correcting tokens with ratios 1, 4, 1/2 and advantages 1, -1, 3', () => {
  const none: Correction = { weights: { kind: 'none' }, mask: { kind: 'none' } };
  const correct = (over: Partial<Correction>): CorrectedTokens =>
    correctTokens({ ...none, ...over }, { behavior, proximal, advantages });

  it('a correction without weights or a mask leaves the inputs unchanged and needs no pass', () => {
    const { logprobs, advantages: left } = correct({});
    assert.deepEqual([[...logprobs], [...left]], [behavior, advantages]);
    assert(!needsProximal(none));
  });

  it('a correction with a mask removes the advantage and the log-ratio of a masked token', () => {
    const mask = { kind: 'icepop', low: 0.4, high: 3 } as const;
    const { logprobs, advantages: left, sides } = correct({ mask });
    assert.deepEqual([...left], [1, 0, 3]);
    assert.deepEqual([...logprobs], [-1, proximal[1], -1]);
    assert.deepEqual([...sides], [0, 1, 0]);
    assert(needsProximal({ ...none, mask }));
  });

  it('a correction with weights scales the advantages and starts the loss at ratio 1', () => {
    const { logprobs, advantages: left } = correct({ weights: { kind: 'token', cap: 3 } });
    assertClose(left, [1, -3, 1.5]);
    assert.deepEqual([...logprobs], proximal);
  });

  it('a correction with both masks tokens that it would have weighted', () => {
    const { advantages: left, weights } = correct({
      weights: { kind: 'sequence', cap: 3 },
      mask: { kind: 'icepop', low: 0.4, high: 3 },
    });
    assertClose(left, [2, 0, 6]);
    assertClose(weights, [2, 2, 2]);
  });

  it('a correction refuses arrays of different lengths', () => {
    const short = { behavior, proximal: [-1], advantages };
    assert.throws(() => correctTokens(none, short), /1 proximal logprobs, 3 of behavior/);
    const few = { behavior, proximal, advantages: [1] };
    assert.throws(() => correctTokens(none, few), /1 advantages for 3 tokens/);
  });
});

describe('a corrected loss', () => {
  const gradientOf = (
    name: LossName,
    config: Record<string, number>,
    current: readonly number[],
    { logprobs, advantages }: Pick<CorrectedTokens, 'logprobs' | 'advantages'>,
  ) => lossAndGradient(name, current, { logprobs, advantages, weights: advantages }, config);
  const clipped = { clip_low_threshold: 0.8, clip_high_threshold: 1.2 };
  const weights = { kind: 'token', cap: 3 } as const;
  const decoupled = { weights, mask: { kind: 'none' } } as const;

  it('the loss ppo corrected with token weights is decoupled PPO', () => {
    // One substep later: token 0 has r = 1.5 against the proximal policy, the others 1.
    const current = [proximal[0]! + Math.log(1.5), proximal[1]!, proximal[2]!];
    const corrected = correctTokens(decoupled, { behavior, proximal, advantages });
    const { loss, gradient } = gradientOf('ppo', clipped, current, corrected);
    // w = 1, 3, 1/2: -(1·min(1.5, 1.2) + 3·(-1) + 0.5·3); the clipped token no longer moves.
    assertClose([loss], [-(1.2 - 3 + 1.5)]);
    assertClose(gradient, [0, 3, -1.5]);
  });

  it('a corrected loss has the gradient of truncated importance sampling before the first optimizer step', () => {
    const logprob = fc.double({ min: -6, max: -0.01, noNaN: true });
    const token = fc.tuple(logprob, logprob, fc.double({ min: -2, max: 2, noNaN: true }));
    const cap = 4;
    const bounds = { clip_low_threshold: 0, clip_high_threshold: cap };
    fc.assert(
      fc.property(token, ([q, p, advantage]) => {
        const one = { behavior: [q], proximal: [p], advantages: [advantage] };
        const corrected = correctTokens({ ...decoupled, weights: { ...weights, cap } }, one);
        const cispo = lossAndGradient(
          'cispo',
          [p],
          { logprobs: [q], advantages: [advantage] },
          bounds,
        );
        for (const name of ['importance_sampling', 'ppo', 'cross_entropy'] as const) {
          const { gradient } = gradientOf(name, clipped, [p], corrected);
          assertClose(gradient, cispo.gradient, 1e-9);
        }
      }),
    );
  });

  it('a corrected loss has no gradient on a masked token, not even the pull of dro', () => {
    const mask = { kind: 'icepop', low: 0.4, high: 3 } as const;
    const corrected = correctTokens(
      { weights: { kind: 'none' }, mask },
      { behavior, proximal, advantages },
    );
    const { gradient } = gradientOf('dro', { beta: 0.5 }, proximal, corrected);
    assertClose(gradient, [-1, 0, -(3 + 0.5 * ln2)]);
  });
});
