import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { datumOf } from '../../learner/datums.js';
import { sendMinibatch, type MinibatchBackend } from '../../learner/minibatch-pass.js';
import { reportStep } from '../../learner/step-report.js';
import type { Datum } from '../../shared/tinker/types.js';
import { rollout, rolloutGroup, runConfig, scoredGroup } from '../support/messages.js';

describe('a datum of prompt 5 6 7 and completion 1 2', () => {
  const prompt = Int32Array.of(5, 6, 7);
  const completion = {
    tokens: Int32Array.of(1, 2),
    behaviorLogprobs: Float32Array.of(-0.5, -0.25),
  };

  it('scores each completion token from the position before it', () => {
    const { tokens, targetTokens, inputs } = datumOf('cispo', prompt, completion, 2);
    assert.deepEqual([...tokens], [5, 6, 7, 1]);
    assert.deepEqual([...targetTokens], [6, 7, 1, 2]);
    assert.deepEqual([...inputs.advantages!], [0, 0, 2, 2]);
    assert.deepEqual([...inputs.logprobs!], [0, 0, -0.5, -0.25]);
    assert.equal(inputs.weights, undefined);
  });

  it('has weights alone for cross_entropy', () => {
    const { inputs } = datumOf('cross_entropy', prompt, completion, -1);
    assert.deepEqual(Object.keys(inputs), ['weights']);
    assert.deepEqual([...inputs.weights!], [0, 0, -1, -1]);
  });

  it('has the current logprobs on the prompt for dro', () => {
    const { inputs } = datumOf('dro', prompt, completion, 1, [-3, -4, -9, -9]);
    assert.deepEqual([...inputs.logprobs!], [-3, -4, -0.5, -0.25]);
  });
});

/** Answers with logprob -1 everywhere and remembers what it was asked, in order. */
class FakeBackend implements MinibatchBackend {
  readonly calls: { name: string; data: readonly Datum[]; config: object }[] = [];
  readonly #answer = (name: string) => (data: readonly Datum[], _loss: string, config: object) => {
    this.calls.push({ name, data, config });
    const logprobs = data.map(({ tokens }) => new Float32Array(tokens.length).fill(-1));
    return Promise.resolve({ logprobs, metrics: { 'loss:sum': 3 } });
  };
  readonly forwardBackward = this.#answer('forward_backward');
  readonly forward = this.#answer('forward');
}

describe('a minibatch of one group with rewards 1 and 0', () => {
  const scored = scoredGroup({ group: rolloutGroup({ rollouts: [rollout(2), rollout(4)] }) });
  scored.scores[1] = { ...scored.scores[1]!, reward: 0, exactReward: '0' };
  const settings = runConfig({ sampling: { temperature: 0.7, maxTokens: 16 } });

  it('sends every setting of the loss and the temperature that sampled', async () => {
    const backend = new FakeBackend();
    await sendMinibatch(backend, settings, [scored], [0]);
    assert.deepEqual(
      backend.calls.map(({ name, config }) => [name, config]),
      [['forward_backward', { clip_low_threshold: 0, clip_high_threshold: 4, temperature: 0.7 }]],
    );
  });

  it('normalizes by scaling advantages', async () => {
    const backend = new FakeBackend();
    const perSequence = { ...settings, normalization: 'sequence', numMinibatches: 2 } as const;
    await sendMinibatch(backend, perSequence, [scored], [0]);
    const [long, short] = [1, 0].map((i) => backend.calls[0]!.data[i]!.inputs.advantages!);
    assert.deepEqual([...short!], [0, 0, 0.5 / (2 * 2 * 2), 0.5 / (2 * 2 * 2)]);
    assert.deepEqual([...long!.slice(0, 3)], [0, 0, -0.5 / (4 * 2 * 2)]);
  });

  it('pairs the returned logprobs of the completion with those of the behavior policy', async () => {
    const sent = await sendMinibatch(new FakeBackend(), settings, [scored], [1]);
    const { rollouts, lossSum } = await sent.result;
    assert.equal(lossSum, 3);
    assert.deepEqual(
      rollouts.map(({ current, behavior, staleness }) => [
        current.length,
        behavior.length,
        staleness,
      ]),
      [
        [2, 2, 1],
        [4, 4, 1],
      ],
    );
  });

  it('asks for the prompt logprobs first when the loss is dro', async () => {
    const backend = new FakeBackend();
    const dro = { ...settings, loss: { name: 'dro', config: { beta: 0.1 } } } as const;
    await sendMinibatch(backend, dro, [scored], [0]);
    assert.deepEqual(
      backend.calls.map(({ name }) => name),
      ['forward', 'forward_backward'],
    );
    const { logprobs } = backend.calls[1]!.data[0]!.inputs;
    assert.deepEqual([...logprobs!], [-1, -1, -0.125, -0.25]);
  });

  it('is reported with what the canonical names say', async () => {
    const sent = await sendMinibatch(new FakeBackend(), settings, [scored], [1]);
    const group = { scored, seq: 1, sampledBy: [0], arrivedAtVersion: 0 };
    const trained = [{ group, staleness: 1, substep: 0 }];
    const report = reportStep(settings, 1, trained, [await sent.result]);
    // Behavior logprobs -1/8, -2/8 and -1/8 … -4/8, current ones -1: mean q - p.
    const gaps = [7 / 8, 6 / 8, 7 / 8, 6 / 8, 5 / 8, 4 / 8];
    const mean = (values: number[]) => values.reduce((a, b) => a + b, 0) / values.length;
    assert.equal(report['staleness/mean'], 1);
    assert.equal(report['kl_sample_train_v1'], mean(gaps));
    assert.equal(report['kl_sample_train_v2'], mean(gaps.map((gap) => 0.5 * gap * gap)));
    assert.equal(report['kl_sample_train_v1/staleness_1'], mean(gaps));
  });
});
