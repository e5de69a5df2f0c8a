import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  lossAndGradient,
  losses,
  LossName,
  lossSettings,
  ratioBounds,
} from '../../../shared/rl/losses.js';
import { unbounded } from '../../../shared/rl/off-policy.js';
import { assertClose } from './close.js';

// Three tokens whose ratios are 1, 2 and 1/2: current logprobs are the behavior's plus log r.
const logprobs = [-1, -2, -1];
const current = [-1, -2 + Math.log(2), -1 - Math.log(2)];
const advantages = [1, 1, -2];

function loss(name: LossName, config: Record<string, number> = {}) {
  return lossAndGradient(name, current, { logprobs, advantages, weights: advantages }, config);
}

describe('the losses of three tokens with ratios 1, 2, 1/2 and advantages 1, 1, -2', () => {
  it('the loss cross_entropy is -Σ w·ℓ', () => {
    const { loss: value, gradient } = loss('cross_entropy');
    // -(-1 + (-2 + ln 2) - 2·(-1 - ln 2)) = 1 - 3 ln 2
    assertClose([value], [1 - 3 * Math.log(2)]);
    assertClose(gradient, [-1, -1, 2]);
  });

  it('the loss importance_sampling is -Σ r·A', () => {
    const { loss: value, gradient } = loss('importance_sampling');
    assertClose([value], [-(1 + 2 - 1)]);
    assertClose(gradient, [-1, -2, 1]);
  });

  it('the loss ppo takes the worse of the plain and the clipped surrogate, which does not move', () => {
    const { loss: value, gradient } = loss('ppo', bounds(0.8, 1.2));
    // Plain 1, 2, -1; clipped 1, 1.2, -1.6: the smaller ones are 1, 1.2 and -1.6.
    assertClose([value], [-(1 + 1.2 - 1.6)]);
    assertClose(gradient, [-1, 0, 0]);
  });

  it('the loss ppo still pulls back a token that left the bounds on the wrong side', () => {
    const inputs = { logprobs: [-1, -1], advantages: [-1, 1] };
    const moved = [-1 + Math.log(2), -1 - Math.log(2)]; // a bad token up, a good one down
    const { gradient } = lossAndGradient('ppo', moved, inputs, bounds(0.8, 1.2));
    assertClose(gradient, [2, -0.5]);
  });

  it('the loss cispo weights logprobs by the clipped ratio, which carries no gradient', () => {
    const { loss: value, gradient } = loss('cispo', bounds(0, 1.5));
    // Weights 1·1, 1.5·1, 0.5·(-2).
    assertClose([value], [-(-1 + 1.5 * (-2 + Math.log(2)) + 1 + Math.log(2))]);
    assertClose(gradient, [-1, -1.5, 1]);
  });

  it('the loss dro adds a quadratic pull towards the behavior policy', () => {
    const { loss: value, gradient } = loss('dro', { beta: 0.5 });
    const log2 = Math.log(2);
    const linear = -1 + (-2 + log2) - 2 * (-1 - log2);
    assertClose([value], [-(linear - 0.25 * (0 + log2 ** 2 + log2 ** 2))]);
    assertClose(gradient, [-1, -(1 - 0.5 * log2), 2 - 0.5 * log2]);
  });
});

describe('the losses', () => {
  const settings = (name: LossName) => lossSettings(name, { beta: 0.3 }, 'learner');
  const token = fc.record({
    logprob: fc.double({ min: -6, max: -0.01, noNaN: true }),
    behavior: fc.double({ min: -6, max: -0.01, noNaN: true }),
    advantage: fc.double({ min: -2, max: 2, noNaN: true }),
  });
  // The gradient of cispo is by design not that of its value, whose weight depends on ℓ too.
  for (const name of LossName.options.filter((each) => each !== 'cispo')) {
    it(`the loss ${name} has the gradient that finite differences find`, () => {
      fc.assert(
        fc.property(token, ({ logprob, behavior, advantage }) => {
          const at = (x: number) =>
            lossAndGradient(
              name,
              [x],
              { logprobs: [behavior], advantages: [advantage], weights: [advantage] },
              settings(name),
            );
          const step = 1e-6;
          const ratio = Math.exp(logprob - behavior);
          // At a clipping bound the loss has a kink and no derivative.
          const { low, high } = ratioBounds(name, settings(name));
          fc.pre(Math.abs(ratio - low) > 1e-3 && Math.abs(ratio - high) > 1e-3);
          const numeric = (at(logprob + step).loss - at(logprob - step).loss) / (2 * step);
          assertClose(at(logprob).gradient, [numeric], 1e-4 * Math.max(1, Math.abs(numeric)));
        }),
      );
    });
  }

  for (const name of LossName.options) {
    const { scaledBy } = losses[name];
    it(`the loss ${name} ${scaledBy ? `is 0 where ${scaledBy} are 0` : 'counts every position'}`, () => {
      const inputs = { logprobs: [-1], advantages: [2], weights: [2] };
      const zero = scaledBy ? { [scaledBy]: [0] } : { advantages: [0], weights: [0] };
      const at = (changed: object) =>
        lossAndGradient(name, [-3], { ...inputs, ...changed }, settings(name));
      const isZero = ({ loss: value, gradient }: ReturnType<typeof at>) =>
        value === 0 && gradient[0] === 0;
      assert.deepEqual([isZero(at({})), isZero(at(zero))], [false, scaledBy !== undefined]);
    });
  }

  it('the losses have defaults of the learner and of a server for settings that are not given', () => {
    const defaults = (side: 'learner' | 'server') =>
      Object.fromEntries(LossName.options.map((name) => [name, lossSettings(name, {}, side)]));
    const none = { importance_sampling: {}, cross_entropy: {} };
    assert.deepEqual(defaults('learner'), {
      ...none,
      ppo: bounds(0.8, 1.2),
      cispo: bounds(0, 4),
      dro: { beta: 0.01 },
    });
    assert.deepEqual(defaults('server'), {
      ...none,
      ppo: bounds(0.9, 1.1),
      cispo: bounds(0.9, 1.1),
      dro: { beta: 0.01 },
    });
    const given = { clip_low_threshold: 0, temperature: 0.5 };
    assert.deepEqual(lossSettings('ppo', given, 'server'), bounds(0, 1.1));
  });

  it('the losses bound the importance ratio by their thresholds, or not at all', () => {
    assert.deepEqual(ratioBounds('ppo', bounds(0.8, 1.2)), { low: 0.8, high: 1.2 });
    assert.deepEqual(ratioBounds('cispo', bounds(0, 4)), { low: 0, high: 4 });
    for (const name of ['importance_sampling', 'dro', 'cross_entropy'] as const) {
      assert.deepEqual(ratioBounds(name, { beta: 1 }), unbounded);
    }
    assert.throws(() => ratioBounds('ppo', {}), /ppo needs the setting clip_low_threshold/);
  });

  it('the loss cispo with bounds (0, C) is token-level truncated importance sampling', () => {
    fc.assert(
      fc.property(token, ({ logprob, behavior, advantage }) => {
        const inputs = { logprobs: [behavior], advantages: [advantage] };
        const { gradient } = lossAndGradient('cispo', [logprob], inputs, bounds(0, 4));
        assertClose(gradient, [-Math.min(Math.exp(logprob - behavior), 4) * advantage]);
      }),
    );
  });

  it('a loss names the input or the setting that is missing', () => {
    const inputs = { logprobs: [-1], advantages: [1] };
    assert.throws(() => lossAndGradient('ppo', [-1], inputs, {}), /ppo needs the setting clip_low/);
    assert.throws(
      () => lossAndGradient('cispo', [-1], { advantages: [1] }, bounds(0, 4)),
      /cispo needs 1 logprobs, got none/,
    );
    assert.throws(
      () => lossAndGradient('cross_entropy', [-1, -2], { weights: [1] }, {}),
      /cross_entropy needs 2 weights, got 1/,
    );
  });
});

function bounds(low: number, high: number) {
  return { clip_low_threshold: low, clip_high_threshold: high };
}
