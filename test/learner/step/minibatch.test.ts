import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { datumOf, unweightedDatum } from '../../../learner/step/datums.js';
import {
  needsWholeBatch,
  prepareMinibatches,
  sendMinibatch,
  type MinibatchBackend,
  type MinibatchResult,
  type PassSettings,
} from '../../../learner/step/minibatch-pass.js';
import { reportStep } from '../../../learner/step/step-report.js';
import type { Datum } from '../../../shared/rl/datum.js';
import { assertClose } from '../../shared/rl/close.js';
import { rollout, rolloutGroup, runConfig, scoredGroup } from '../../support/messages.js';

describe('datumOf, for prompt 5 6 7 and completion 1 2', () => {
  const prompt = Int32Array.of(5, 6, 7);
  const completion = Int32Array.of(1, 2);
  const inputs = { logprobs: [-0.5, -0.25], advantages: [2, -1] };

  it('a datum scores each completion token from the position before it', () => {
    const datum = datumOf('cispo', prompt, completion, inputs);
    assert.deepEqual([...datum.tokens], [5, 6, 7, 1]);
    assert.deepEqual([...datum.targetTokens], [6, 7, 1, 2]);
    assert.deepEqual([...datum.inputs.advantages!], [0, 0, 2, -1]);
    assert.deepEqual([...datum.inputs.logprobs!], [0, 0, -0.5, -0.25]);
    assert.equal(datum.inputs.weights, undefined);
  });

  it('a datum for cross_entropy has only weights', () => {
    const datum = datumOf('cross_entropy', prompt, completion, inputs);
    assert.deepEqual(Object.keys(datum.inputs), ['weights']);
    assert.deepEqual([...datum.inputs.weights!], [0, 0, 2, -1]);
  });

  it('a datum for dro has the current logprobs on the prompt', () => {
    const current = Float32Array.of(-3, -4, -9, -9);
    const datum = datumOf('dro', prompt, completion, inputs, current);
    assert.deepEqual([...datum.inputs.logprobs!], [-3, -4, -0.5, -0.25]);
  });

  it('an unweighted datum trains nothing', () => {
    const datum = unweightedDatum(prompt, completion);
    assert.deepEqual([...datum.targetTokens], [6, 7, 1, 2]);
    assert.deepEqual([...datum.inputs.weights!], [0, 0, 0, 0]);
  });
});

const anyAge = { version: 0, maxStepsOffPolicy: Infinity, rewinds: [] };

/** Answers with the same logprob everywhere and records its calls in order. */
class FakeBackend implements MinibatchBackend {
  readonly calls: { name: string; data: readonly Datum[]; loss: string; config: object }[] = [];
  readonly run = this;
  readonly base: FakeBackend | undefined;
  readonly #logprob: number;

  constructor(logprob = -1, base?: FakeBackend) {
    this.#logprob = logprob;
    this.base = base;
  }

  readonly #answer = (name: string) => (data: readonly Datum[], loss: string, config: object) => {
    this.calls.push({ name, data, loss, config });
    const logprobs = data.map(({ tokens }) => new Float32Array(tokens.length).fill(this.#logprob));
    return Promise.resolve({ logprobs, metrics: { 'loss:sum': 3 } });
  };
  readonly forwardBackward = this.#answer('forward_backward');
  readonly forward = this.#answer('forward');
}

describe('a minibatch of one group with rewards 1 and 0', () => {
  const pass = async (backend: FakeBackend, config: PassSettings): Promise<MinibatchResult> => {
    const [prepared] = await prepareMinibatches(backend, config, [[scored]], anyAge);
    return sendMinibatch(backend, config, prepared!);
  };
  const scored = scoredGroup({ group: rolloutGroup({ rollouts: [rollout(2), rollout(4)] }) });
  scored.scores[1] = { ...scored.scores[1]!, reward: 0, exactReward: '0' };
  const settings = runConfig({ sampling: { temperature: 0.7, maxTokens: 16 } });

  it('a minibatch is sent with every setting of the loss and the sampling temperature', async () => {
    const backend = new FakeBackend();
    await pass(backend, settings);
    assert.deepEqual(
      backend.calls.map(({ name, config }) => [name, config]),
      [['forward_backward', { clip_low_threshold: 0, clip_high_threshold: 4, temperature: 0.7 }]],
    );
  });

  it('normalization scales the advantages of a minibatch', async () => {
    const backend = new FakeBackend();
    const perSequence = { ...settings, normalization: 'sequence', numMinibatches: 2 } as const;
    await pass(backend, perSequence);
    const [long, short] = [1, 0].map((i) => backend.calls[0]!.data[i]!.inputs.advantages!);
    assert.deepEqual([...short!], [0, 0, 0.5 / (2 * 2 * 2), 0.5 / (2 * 2 * 2)]);
    assert.deepEqual([...long!.slice(0, 3)], [0, 0, -0.5 / (4 * 2 * 2)]);
  });

  it('the result pairs the returned logprobs of the completion with those of the behavior policy', async () => {
    const result = await pass(new FakeBackend(), settings);
    const { rollouts, lossSum } = result;
    assert.equal(lossSum, 3);
    assert.deepEqual(
      rollouts.map(({ current, behavior, versions }) => [
        current.length,
        behavior.length,
        versions,
      ]),
      [
        [2, 2, [[0, 2]]],
        [4, 4, [[0, 4]]],
      ],
    );
  });

  it('a dro minibatch first requests the prompt logprobs', async () => {
    const backend = new FakeBackend();
    const dro = { ...settings, loss: { name: 'dro', config: { beta: 0.1 } } } as const;
    await pass(backend, dro);
    assert.deepEqual(
      backend.calls.map(({ name }) => name),
      ['forward', 'forward_backward'],
    );
    const { logprobs } = backend.calls[1]!.data[0]!.inputs;
    assert.deepEqual([...logprobs!], [-1, -1, -0.125, -0.25]);
  });

  it('logprobs of broken weights are not sent', async () => {
    const dro = { ...settings, loss: { name: 'dro', config: { beta: 0.1 } } } as const;
    const mask = { kind: 'icepop', low: 0.45, high: 2 } as const;
    const masked = { ...settings, correction: { weights: { kind: 'none' }, mask } } as const;
    for (const config of [dro, masked]) {
      for (const broken of [NaN, -Infinity]) {
        const backend = new FakeBackend(broken);
        await pass(backend, config);
        const sent = backend.calls[1]!.data.flatMap(({ inputs }) => Object.values(inputs));
        assert(sent.length > 0);
        for (const values of sent) assert(values.every(Number.isFinite));
      }
    }
  });

  it('a masked minibatch first requests the proximal logprobs and trains on the tokens that are left', async () => {
    const backend = new FakeBackend();
    const correction = {
      weights: { kind: 'none' },
      mask: { kind: 'icepop', low: 0.45, high: 2 },
    } as const;
    const result = await pass(backend, { ...settings, correction });
    assert.deepEqual(
      backend.calls.map(({ name, loss, config }) => [name, loss, config]),
      [
        ['forward', 'cross_entropy', { temperature: 0.7 }],
        ['forward_backward', 'cispo', { ...settings.loss.config, temperature: 0.7 }],
      ],
    );
    // Ratios e^(-7/8) = 0.417, e^(-6/8) = 0.47, e^(-5/8) = 0.535 and e^(-4/8) = 0.607.
    const [short, long] = backend.calls[1]!.data.map(({ inputs }) => inputs);
    assert.deepEqual([...short!.advantages!], [0, 0, 0, 0.5]);
    assert.deepEqual([...short!.logprobs!], [-1, -1, -1, -0.25]);
    assert.deepEqual([...long!.advantages!], [0, 0, 0, -0.5, -0.5, -0.5]);
    const group = { scored, seq: 1, sampledBy: [0], arrivedAtVersion: 0 };
    const trained = [{ group, staleness: 0, substep: 0 }];
    const report = reportStep({ ...settings, correction }, 0, trained, [result]);
    assert.deepEqual([report['mask/low_share'], report['mask/high_share']], [2 / 6, 0]);
  });

  it('importance weights are taken against the proximal policy', async () => {
    const backend = new FakeBackend(-0.25);
    const correction = { weights: { kind: 'token', cap: 0.9 }, mask: { kind: 'none' } } as const;
    const result = await pass(backend, { ...settings, correction });
    // Log-ratios -1/8 and 0, and -1/8, 0, 1/8, 1/4: all but the first of each are capped.
    const low = Math.fround(Math.exp(-1 / 8) / 2);
    const [short, long] = backend.calls[1]!.data.map(({ inputs }) => inputs);
    assertClose(short!.advantages!, [0, 0, low, 0.45], 1e-7);
    assertClose(long!.advantages!, [0, 0, -low, -0.45, -0.45, -0.45], 1e-7);
    assert.deepEqual([...short!.logprobs!.subarray(2)], [-0.25, -0.25]);
    const group = { scored, seq: 1, sampledBy: [0], arrivedAtVersion: 0 };
    const trained = [{ group, staleness: 0, substep: 0 }];
    const report = reportStep({ ...settings, correction }, 0, trained, [result]);
    assertClose([report['weights/capped_share']!], [4 / 6]);
    assertClose([report['weights/mean']!], [(2 * Math.exp(-1 / 8) + 4 * 0.9) / 6]);
  });

  it('no ratio to the sampler counts as clipped if the loss takes its ratio to the start of the step', async () => {
    const loss = {
      name: 'ppo',
      config: { clip_low_threshold: 0.9, clip_high_threshold: 1.1 },
    } as const;
    const report = async (kind: 'none' | 'sequence') => {
      const weights = kind === 'none' ? { kind } : { kind, cap: 2 };
      const config = {
        ...settings,
        loss,
        correction: { weights, mask: { kind: 'none' } },
      } as const;
      const result = await pass(new FakeBackend(-0.25), config);
      const group = { scored, seq: 1, sampledBy: [0], arrivedAtVersion: 0 };
      return reportStep(config, 0, [{ group, staleness: 0, substep: 0 }], [result]);
    };
    // Log-ratios -1/8 and 0, and -1/8, 0, 1/8, 1/4.
    const plain = await report('none');
    assert.deepEqual([plain['ratio/below_share'], plain['ratio/above_share']], [2 / 6, 2 / 6]);
    const weighted = await report('sequence');
    assert.deepEqual([weighted['ratio/below_share'], weighted['ratio/above_share']], [0, 0]);
  });

  it('the KL penalty charges tokens for their distance from the base model', async () => {
    const base = new FakeBackend(-0.5);
    const backend = new FakeBackend(-1, base);
    const config = { ...settings, extraTerms: { ...settings.extraTerms, klPenalty: 2 } };
    const result = await pass(backend, config);
    assert.deepEqual(
      base.calls.map(({ name, config }) => [name, config]),
      [['forward', { temperature: 0.7 }]],
    );
    // Costs q - base: 3/8, 2/8, and 3/8, 2/8, 1/8, 0; their mean is 11/48.
    const term = (cost: number) => 2 * (11 / 48 - cost);
    const [short, long] = backend.calls[0]!.data.map(({ inputs }) => inputs.advantages!);
    assertClose(short!, [0, 0, 0.5 + term(3 / 8), 0.5 + term(2 / 8)], 1e-7);
    assertClose(long!.subarray(2, 4), [-0.5 + term(3 / 8), -0.5 + term(2 / 8)], 1e-7);
    const group = { scored, seq: 1, sampledBy: [0], arrivedAtVersion: 0 };
    const report = reportStep(config, 0, [{ group, staleness: 0, substep: 0 }], [result]);
    assertClose([report['kl_policy_base']!], [11 / 48]);
  });

  it('the entropy bonus rewards surprising tokens while entropy is below its target', async () => {
    const backend = new FakeBackend();
    const entropyBonus = { coefficient: 0.8, target: 0.5 };
    const config = { ...settings, extraTerms: { ...settings.extraTerms, entropyBonus } };
    await pass(backend, config);
    // -q is 1/8, 2/8, and 1/8 … 4/8, 13/48 on average: the bonus is 0.8·(1/2 - 13/48)·2.
    const bonus = 0.8 * (1 - 13 / 24);
    const [short] = backend.calls[0]!.data.map(({ inputs }) => inputs.advantages!);
    const term = (surprise: number) => bonus * (surprise - 13 / 48);
    assertClose(short!, [0, 0, 0.5 + term(1 / 8), 0.5 + term(2 / 8)], 1e-7);
  });

  it('normalization scales the KL and entropy terms like the advantages', async () => {
    const advantages = async (extraTerms: Partial<PassSettings['extraTerms']>) => {
      const backend = new FakeBackend(-1, new FakeBackend(-0.5));
      const terms = { ...settings.extraTerms, ...extraTerms };
      await pass(backend, { ...settings, normalization: 'sequence', extraTerms: terms });
      return backend.calls[0]!.data.map(({ inputs }) => inputs.advantages!);
    };
    const plain = await advantages({});
    const [withKl, withBonus] = await Promise.all([
      advantages({ klPenalty: 2 }),
      advantages({ entropyBonus: { coefficient: 0.8 } }),
    ]);
    // Each term is coefficient · (mean cost - cost), divided by the 2 or 4 tokens of the answer, and by 2 answers.
    [2, 4].forEach((tokens, i) => {
      const added = (to: Float32Array[]) => to[i]!.at(-1)! - plain[i]!.at(-1)!;
      const surprise = tokens / 8; // of the last token
      assertClose([added(withKl)], [(2 * (11 / 48 - (1 / 2 - surprise))) / tokens / 2], 1e-7);
      assertClose([added(withBonus)], [(0.8 * (surprise - 13 / 48)) / tokens / 2], 1e-7);
    });
  });

  it('the length penalty is subtracted from the rewards before they are compared', async () => {
    const backend = new FakeBackend();
    const lengthPenalty = { weight: 1, freeTokens: 2 };
    const config = { ...settings, extraTerms: { ...settings.extraTerms, lengthPenalty } };
    await pass(backend, config);
    // Rewards 1 and 0 - 2/14: the difference is 16/14.
    const [short] = backend.calls[0]!.data.map(({ inputs }) => inputs.advantages!);
    assertClose(short!, [0, 0, 8 / 14, 8 / 14], 1e-7);
  });

  it('the step report has the numbers of a minibatch under their canonical names', async () => {
    const result = await pass(new FakeBackend(), settings);
    const group = { scored, seq: 1, sampledBy: [0], arrivedAtVersion: 0 };
    const trained = [{ group, staleness: 1, substep: 0 }];
    const report = reportStep(settings, 1, trained, [result]);
    // Behavior logprobs -1/8, -2/8 and -1/8 … -4/8, current ones -1: mean q - p.
    const gaps = [7 / 8, 6 / 8, 7 / 8, 6 / 8, 5 / 8, 4 / 8];
    const mean = (values: number[]) => values.reduce((a, b) => a + b, 0) / values.length;
    assert.equal(report['staleness/mean'], 1);
    assert.deepEqual(
      [report['staleness/in_flight/mean'], report['staleness/in_queue/mean']],
      [0, 1],
    );
    assert.equal(report['kl_sample_train_v1'], mean(gaps));
    assert.equal(report['kl_sample_train_v2'], mean(gaps.map((gap) => 0.5 * gap * gap)));
    assert.equal(report['kl_sample_train_v1/staleness_1'], mean(gaps));
  });

  it('the step report has the divergence of each token by the version that sampled it', async () => {
    const versions: [number, number][] = [
      [0, 1],
      [1, 3],
    ];
    const mixed = scoredGroup({
      group: rolloutGroup({
        rollouts: [rollout(2, { versions: [[1, 2]] }), rollout(4, { versions })],
      }),
    });
    const backend = new FakeBackend();
    const [prepared] = await prepareMinibatches(backend, settings, [[mixed]], anyAge);
    const result = await sendMinibatch(backend, settings, prepared!);
    const group = { scored: mixed, seq: 1, sampledBy: [0, 1], arrivedAtVersion: 2 };
    const trained = [{ group, staleness: 2, substep: 0 }];
    const report = reportStep({ ...settings, maxStepsOffPolicy: 2 }, 2, trained, [result]);
    assert.equal(report['kl_sample_train_v1/staleness_2'], 7 / 8);
    assertClose(
      [report['kl_sample_train_v1/staleness_1']!],
      [(7 / 8 + 6 / 8 + 6 / 8 + 5 / 8 + 4 / 8) / 5],
    );
  });
});

describe('the ages of a group whose tokens are of versions 3 and 5, trained on by version 6', () => {
  const rollouts = [
    rollout(4, {
      versions: [
        [3, 1],
        [5, 3],
      ],
    }),
    rollout(4, { versions: [[5, 4]] }),
  ];
  const scored = scoredGroup({ group: rolloutGroup({ rollouts }) });
  const group = { scored, seq: 1, sampledBy: [3, 5], arrivedAtVersion: 5 };
  const age = (report: Record<string, number>, of: string) => report[`staleness/${of}`];

  it('the step report splits the age of a group into in flight and in queue', () => {
    const config = runConfig({ numSubsteps: 2, maxStepsOffPolicy: 3 });
    const report = reportStep(config, 6, [{ group, staleness: 3, substep: 1 }], []);
    assert.deepEqual([age(report, 'mean'), age(report, 'max')], [3, 3]);
    assert.deepEqual([age(report, 'in_flight/mean'), age(report, 'in_queue/mean')], [2, 1]);
    assert.equal(age(report, 'newest_token/mean'), 1);
    assert.equal(age(report, 'token_weighted/mean'), (1 * 3 + 7 * 1) / 8);
    assert.equal(age(report, 'optimizer_steps/mean'), 3 * 2 + 1); // the second substep of the step
    assert.deepEqual([report['version_span/mean'], report['version_span/max']], [1.5, 2]);
  });

  it('the step report counts ages in steps, not in the version numbers that a crash has raised', () => {
    const rewinds = [{ from: 6, to: 4 }]; // the weights of version 4 are called 6 now
    const report = reportStep(
      runConfig(),
      6,
      [{ group: { ...group, arrivedAtVersion: 6 }, staleness: 1, substep: 0 }],
      [],
      rewinds,
    );
    assert.equal(age(report, 'newest_token/mean'), 1); // a step back, or a lost one forward
    assert.equal(age(report, 'token_weighted/mean'), 1);
  });
});

describe('a batch of two minibatches, with rewards 1 and 0, and 3 and 1', () => {
  const make = (rewards: readonly number[]) => {
    const scored = scoredGroup({ group: rolloutGroup({ rollouts: [rollout(2), rollout(2)] }) });
    return {
      ...scored,
      scores: scored.scores.map((score, i) => ({ ...score, reward: rewards[i]! })),
    };
  };
  const minibatches = [[make([1, 0])], [make([3, 1])]];
  const weights = { kind: 'token', cap: 2 } as const;
  const settings = runConfig({
    loss: { name: 'ppo', config: { clip_low_threshold: 0.8, clip_high_threshold: 1.2 } },
    correction: { weights, mask: { kind: 'none' } },
    numSubsteps: 2,
    normalization: 'token',
  });

  it('a batch is prepared as a whole if it is corrected over several optimizer steps or uses batch_std', () => {
    assert(needsWholeBatch(settings));
    assert(!needsWholeBatch({ ...settings, numSubsteps: 1 }));
    assert(!needsWholeBatch({ ...settings, correction: runConfig().correction }));
    assert(needsWholeBatch({ ...runConfig(), advantage: 'batch_std' }));
  });

  it('a whole batch gets its proximal logprobs from one forward pass before anything is trained', async () => {
    const backend = new FakeBackend();
    const prepared = await prepareMinibatches(backend, settings, minibatches, anyAge);
    assert.deepEqual(
      backend.calls.map(({ name, data }) => [name, data.length]),
      [['forward', 4]],
    );
    for (const each of prepared) await sendMinibatch(backend, settings, each);
    assert.deepEqual(
      backend.calls.slice(1).map(({ name, data }) => [name, data.length]),
      [
        ['forward_backward', 2],
        ['forward_backward', 2],
      ],
    );
    for (const { data } of backend.calls.slice(1)) {
      for (const { inputs } of data) assert.deepEqual([...inputs.logprobs!.subarray(2)], [-1, -1]);
    }
  });

  it('a whole batch with batch_std has one deviation, but each minibatch its own mean over tokens', async () => {
    const config = {
      ...settings,
      advantage: 'batch_std',
      correction: runConfig().correction,
    } as const;
    const prepared = await prepareMinibatches(new FakeBackend(), config, minibatches, anyAge);
    const deviation = Math.sqrt((1 / 4 + 1 / 4 + 1 + 1) / 4) + 1e-6;
    const advantages = prepared.map(({ data }) => data[0]!.inputs.advantages![2]!);
    assertClose(advantages, [0.5 / deviation / 4, 1 / deviation / 4], 1e-7);
  });
});
