import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { advantageScales, groupAdvantages } from '../../shared/rl/advantages.js';
import type { Datum } from '../../shared/rl/datum.js';
import { AdvantageKind, Normalization } from '../../shared/rl/objective.js';
import { auditPasses, expectedAdvantages, type TrainingSettings } from './audit-passes.js';
import type { JudgedGroup } from './judgement.js';
import type { Recorded } from './witness.js';

const settings: TrainingSettings = {
  groupSize: 2,
  numMinibatches: 1,
  advantage: 'mean_centred',
  normalization: 'none',
  sampling: { temperature: 1, maxTokens: 8 },
  loss: { name: 'cispo', config: { clip_high_threshold: 4 } },
  adam: {
    learningRate: 0.001,
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    weightDecay: 0,
    gradClipNorm: 1,
  },
};

/** Two answers, of two and three tokens, to a prompt of three; the first is right. */
const group: JudgedGroup = {
  ...{ order: 7, isUniform: false, sampledBy: [0] },
  ...{ rewards: [1, 0], lengths: [2, 3], promptLength: 3 },
};
const judged = new Map([['g7', group]]);

/** Three tokens of prompt, of which the last scores the first answer token. */
function datum(length: number, advantage: number): Datum {
  const tokens = new Int32Array(2 + length);
  const advantages = new Float32Array(tokens.length).fill(advantage, 2);
  return {
    tokens,
    targetTokens: tokens,
    inputs: { logprobs: new Float32Array(tokens.length), advantages },
  };
}

function pass(data: readonly Datum[], over: Partial<Recorded['pass']> = {}): Recorded {
  const { name: loss, config } = settings.loss;
  const asked = { modelId: 'a', seqId: 3, isForwardOnly: false, data: [...data], loss };
  return {
    ...{ model: 'a', seq: 3, kind: 'pass', groups: ['g7'] },
    pass: { ...asked, config, ...over },
  };
}

const right = [datum(2, 0.5), datum(3, -0.5)];

describe('the auditor of what the backend was sent', () => {
  it('the pass auditor finds nothing if each token has the advantage of its reward', () => {
    const step: Recorded = { model: 'a', seq: 4, kind: 'step', adam: settings.adam };
    assert.deepEqual(auditPasses([pass(right), step], judged, settings), []);
  });

  const atPrompt = datum(2, 0.5);
  atPrompt.inputs.advantages![1] = 0.5;
  const planted: readonly [what: string, operation: Recorded, found: RegExp][] = [
    [
      'advantages of other rewards',
      pass([datum(2, -0.5), datum(3, 0.5)]),
      /^operation 3 of a gives rollout 0 of ticket 7 the advantage -0.5 at position 2, not 0.5$/m,
    ],
    ['an advantage on the prompt', pass([atPrompt, right[1]!]), /0.5 at position 1, not 0$/m],
    [
      'a rollout that was cut',
      pass([datum(1, 0.5), right[1]!]),
      /3 positions for rollout 0, not 4/,
    ],
    [
      'a group that no actor delivered',
      { ...pass(right), groups: ['g8'] },
      /trained on a group that no actor delivered/,
    ],
    ['another loss', pass(right, { loss: 'ppo' }), /has the loss ppo with .*, not cispo/],
    [
      'another temperature',
      pass(right, { config: { clip_high_threshold: 4, temperature: 2 } }),
      /"temperature":2/,
    ],
    [
      'another learning rate',
      { model: 'a', seq: 4, kind: 'step', adam: { ...settings.adam, learningRate: 0.01 } },
      /operation 4 of a is an optimizer step with .*0.01/,
    ],
  ];
  for (const [what, operation, found] of planted) {
    it(`the pass auditor finds ${what}`, () => {
      assert.match(auditPasses([operation], judged, settings).join('\n'), found);
    });
  }

  it('the pass auditor computes the same advantages as the learner by independent formulas', () => {
    const groups = [
      { rewards: [1, 0.1, 0], lengths: [2, 8, 5] },
      { rewards: [0, 0, 1], lengths: [1, 1, 3] },
    ];
    const kinds = AdvantageKind.options.filter((kind) => kind !== 'batch_std');
    for (const advantage of kinds) {
      for (const normalization of Normalization.options) {
        const scales = advantageScales(
          normalization,
          groups.map(({ lengths }) => lengths),
          { numMinibatches: 2, maxTokens: 8 },
        ).flat();
        const plain = groups.flatMap(({ rewards }) => groupAdvantages(advantage, rewards));
        const own = expectedAdvantages(groups, {
          ...{ ...settings, numMinibatches: 2 },
          ...{ advantage, normalization },
        });
        own.forEach((value, i) => {
          assert(Math.abs(value - plain[i]! * scales[i]!) < 1e-12, `${advantage} ${normalization}`);
        });
      }
    }
  });
});
