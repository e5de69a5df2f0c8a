import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { TrainableAdapter } from '../../local-backend/trainable-adapter.js';
import { decodeAdapter } from '../../shared/model/lora.js';
import { Trainer } from '../../shared/model/trainer.js';
import type { Datum } from '../../shared/rl/datum.js';
import { ServedLoss } from '../../shared/rl/gspo.js';
import { tinyModel, warmAdapter } from '../support/tiny-model.js';

const one = {
  tokens: Int32Array.of(3, 4, 5),
  targetTokens: Int32Array.of(4, 5, 6),
  inputs: { weights: Float32Array.of(1, 1, 1) },
};
const other = { ...one, targetTokens: Int32Array.of(9, 8, 7) };
const adam = {
  learningRate: 1e-2,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0,
  gradClipNorm: 0,
};

describe('the training state of a run', () => {
  let model: Awaited<ReturnType<typeof tinyModel>>;
  let trainer: Trainer;
  before(async () => {
    model = await tinyModel();
    trainer = await Trainer.load(model, { threads: 1 });
  });
  after(() => model[Symbol.asyncDispose]());

  const fresh = () => new TrainableAdapter(warmAdapter(model.config, 1));
  const weights = (adapter: TrainableAdapter) => adapter.encode('base', false).adapter;
  const train = (adapter: TrainableAdapter, data: Datum[]) =>
    adapter.forwardBackward(trainer, data, 'cross_entropy', {});

  it('a training state accumulates the gradients of several passes until a step applies them', async () => {
    const [apart, together] = [fresh(), fresh()];
    await train(apart, [one]);
    await train(apart, [other]);
    await train(together, [one, other]);
    const [a, b] = [apart.optimStep(adam), together.optimStep(adam)];
    assert(Math.abs(a.gradNorm - b.gradNorm) < 1e-4 * b.gradNorm);
    assert(a.gradNorm > 0);
    assert.deepEqual(apart.optimStep(adam), { gradNorm: 0, step: 1 }, 'the gradients are cleared');
  });

  it('a training state does not change in a step without gradients or in a forward pass', async () => {
    const adapter = fresh();
    const untouched = weights(adapter);
    await adapter.forward(trainer, [one], 'cross_entropy', {});
    assert.deepEqual(adapter.optimStep(adam), { gradNorm: 0, step: 0 });
    assert.deepEqual(weights(adapter), untouched);
  });

  it('a training state computes every loss in a forward pass as in a training pass, with the same defaults', async () => {
    const logprobs = Float32Array.of(-1, -3, -6);
    const advantages = Float32Array.of(1, -2, 3);
    const mask = Float32Array.of(0, 1, 1);
    const inputs = { ...one.inputs, logprobs, advantages, sequence_ratio_mask: mask };
    const data = [
      { ...one, inputs },
      { ...other, inputs },
    ];
    for (const loss of ServedLoss.exclude(['custom']).options) {
      const forward = await fresh().forward(trainer, data, loss, {});
      const training = await fresh().forwardBackward(trainer, data, loss, {});
      const error = Math.abs(forward.lossSum - training.lossSum);
      assert(error < 1e-4, `${loss}: ${forward.lossSum} and ${training.lossSum}`);
    }
  });

  it('a training state trains with gspo by the gradient of each logprob, weighted with the ratio of its sequence', async () => {
    const [adapter, expected] = [fresh(), fresh()];
    const { logprobs } = await adapter.forward(trainer, [one], 'cross_entropy', {});
    const [first, second] = logprobs[0]!;
    const ratio = Math.exp((0.2 + 0.4) / 2);
    const inputs = {
      logprobs: Float32Array.of(first! - 0.2, second! - 0.4, -1),
      advantages: Float32Array.of(1, -1, 2),
      sequence_ratio_mask: Float32Array.of(1, 1, 0),
    };
    const config = { clip_low_threshold: 0.5, clip_high_threshold: 2 };
    const result = await adapter.forwardBackward(trainer, [{ ...one, inputs }], 'gspo', config);
    assert(Math.abs(result.lossSum + 2 * ratio) < 1e-5);
    assert.deepEqual(result.logprobs, logprobs);

    const weights = Float32Array.of(ratio, -ratio, 2 * ratio);
    await train(expected, [{ ...one, inputs: { weights } }]);
    const [a, b] = [adapter.optimStep(adam), expected.optimStep(adam)];
    assert(b.gradNorm > 0 && Math.abs(a.gradNorm - b.gradNorm) < 1e-5 * b.gradNorm);
  });

  it('a training state refuses gspo without the tokens of its ratio, and names the datum', async () => {
    const inputs = { logprobs: one.inputs.weights, advantages: one.inputs.weights };
    const empty = { ...inputs, sequence_ratio_mask: new Float32Array(3) };
    const config = { clip_low_threshold: 2 };
    for (const [data, settings, message] of [
      [{ ...one, inputs }, {}, 'gspo: data[0] needs 3 sequence_ratio_mask, found none'],
      [{ ...one, inputs: empty }, {}, 'gspo: data[0]: sequence_ratio_mask marks no token'],
      [one, config, 'loss_fn_config: the lowest ratio, 2, is above the highest, 1.0004; swap them'],
      [
        one,
        { beta: 1 },
        'loss_fn_config has "beta", which gspo does not know; it knows clip_low_threshold, clip_high_threshold, temperature',
      ],
    ] as const) {
      await assert.rejects(fresh().forwardBackward(trainer, [data], 'gspo', settings), {
        name: 'PermanentError',
        message,
      });
    }
  });

  it('a training state refuses a forward pass without an input of the loss, and names the datum', async () => {
    await assert.rejects(fresh().forward(trainer, [one, { ...one, inputs: {} }], 'ppo', {}), {
      name: 'PermanentError',
      message: 'ppo: data[0] needs 3 logprobs, found none',
    });
  });

  it('a training state discards the gradients of a failed pass', async () => {
    const [failed, clean] = [fresh(), fresh()];
    await train(failed, [one]);
    const lacking = { ...one, inputs: {} };
    await assert.rejects(train(failed, [other, lacking]), /weights/);
    await train(clean, [one]);
    failed.optimStep(adam);
    clean.optimStep(adam);
    assert.deepEqual(weights(failed), weights(clean));
  });

  it('a training state refuses a loss that is not finite', async () => {
    const absurd = { ...one, inputs: { weights: Float32Array.of(3e38, 3e38, 3e38) } };
    const name = 'PermanentError'; // the data are to blame: a repetition would fail too
    await assert.rejects(train(fresh(), [absurd]), { name, message: /not finite/ });
  });

  for (const loss of ['importance_sampling', 'ppo', 'cispo'] as const) {
    it(`a position with the advantage 0 has no part in ${loss}, whatever its logprob is`, async () => {
      const with_ = (logprob: number): Datum => ({
        ...one,
        inputs: {
          logprobs: Float32Array.of(logprob, -3, -3),
          advantages: Float32Array.of(0, 1, -1),
        },
      });
      const [usual, strange] = [fresh(), fresh()];
      const a = await usual.forwardBackward(trainer, [with_(-3)], loss, {});
      const b = await strange.forwardBackward(trainer, [with_(-1_000)], loss, {});
      assert.equal(a.lossSum, b.lossSum);
      const [c, d] = [-3, -1_000].map((logprob) =>
        fresh().forward(trainer, [with_(logprob)], loss, {}),
      );
      assert.equal((await c!).lossSum, (await d!).lossSum);
      assert.deepEqual(usual.optimStep(adam), strange.optimStep(adam));
      assert.deepEqual(weights(usual), weights(strange));
    });
  }

  it('a training state refuses a gradient that is not finite although the loss is, and adds none of it', async () => {
    // The ratio of the second token overflows in float32; ppo's clip leaves the loss of a good token finite.
    const [failed, clean] = [fresh(), fresh()];
    const ratioOverflow: Datum = {
      ...one,
      inputs: {
        logprobs: Float32Array.of(-1, -1_000, -1),
        advantages: Float32Array.of(1, 1, 1),
      },
    };
    await train(failed, [other]);
    await train(clean, [other]);
    await assert.rejects(failed.forwardBackward(trainer, [ratioOverflow], 'ppo', {}), {
      name: 'PermanentError',
      message:
        /^the gradient of ppo is not finite although its loss is -?[0-9.]+: a ratio overflows/,
    });
    assert.deepEqual(failed.optimStep(adam), clean.optimStep(adam));
    assert.deepEqual(weights(failed), weights(clean));
  });

  it('a training state refuses settings of a loss that it does not know or that cannot work', async () => {
    const refused = async (loss: ServedLoss, config: Record<string, number>, message: RegExp) => {
      const expected = { name: 'PermanentError', message };
      await assert.rejects(fresh().forwardBackward(trainer, [one], loss, config), expected);
      await assert.rejects(fresh().forward(trainer, [one], loss, config), expected);
    };
    await refused(
      'cross_entropy',
      { temperature: 0 },
      /temperature is 0, expected at least 0\.000001/,
    );
    await refused('cross_entropy', { temperature: 1e-46 }, /is 1e-46, expected at least/);
    await refused('cross_entropy', { temperature: NaN }, /temperature is NaN, expected a finite/);
    await refused('cross_entropy', { beta: 1 }, /has "beta", which cross_entropy does not know/);
    await refused('ppo', { clip_low: 0.8 }, /"clip_low".*it knows clip_low_threshold, clip_high/);
    const inverted = { clip_low_threshold: 1.2, clip_high_threshold: 0.8 };
    await refused('ppo', inverted, /the lowest ratio, 1\.2, is above the highest, 0\.8/);
  });

  it('a training state refuses settings of AdamW that would divide by 0, and keeps its gradients', async () => {
    const [refusing, clean] = [fresh(), fresh()];
    await train(refusing, [one]);
    await train(clean, [one]);
    const wrong = {
      beta1: 1,
      beta2: 1,
      eps: 0,
      learningRate: -1,
      weightDecay: -1,
      gradClipNorm: -1,
    };
    for (const [key, value] of Object.entries(wrong)) {
      const name = key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      assert.throws(() => refusing.optimStep({ ...adam, [key]: value }), {
        name: 'PermanentError',
        message: new RegExp(`^adam_params: ${name} is ${value}, expected `),
      });
    }
    assert.deepEqual(refusing.optimStep(adam), clean.optimStep(adam));
    assert.deepEqual(weights(refusing), weights(clean));
  });

  it('a training state returns non-finite logprobs but does not accumulate their gradients', async () => {
    const adapter = warmAdapter(model.config, 1);
    for (const { data } of adapter.tensors.values()) data.fill(1e30);
    const broken = new TrainableAdapter(adapter);
    const before = weights(broken);
    const { logprobs } = await train(broken, [one]);
    assert(logprobs[0]!.some(Number.isNaN));
    assert.deepEqual(broken.optimStep(adam), { gradNorm: 0, step: 0 });
    assert.deepEqual(weights(broken), before);
  });

  it('a training state restores a saved state and drops accumulated gradients', async () => {
    const adapter = fresh();
    await train(adapter, [one]);
    adapter.optimStep(adam);
    const saved = adapter.encode('base', true);
    await train(adapter, [other]);
    adapter.restore(saved);
    assert.deepEqual(adapter.encode('base', true), saved);
    assert.deepEqual(adapter.optimStep(adam), { gradNorm: 0, step: 1 });
  });

  it('a training state saves weights that decode to an adapter of the same rank', () => {
    const { rank, alpha, tensors } = warmAdapter(model.config, 1);
    const decoded = decodeAdapter(weights(fresh()), { rank, alpha });
    assert.deepEqual([...decoded.tensors.keys()].sort(), [...tensors.keys()].sort());
  });

  it('a training state refuses to restore an adapter of other modules', () => {
    const adapter = fresh();
    const { tensors, ...scale } = warmAdapter(model.config, 1);
    const attention = [...tensors].filter(([key]) => key.includes('self_attn'));
    const part = new TrainableAdapter({ ...scale, tensors: new Map(attention) });
    const untouched = weights(adapter);
    assert.throws(() => {
      adapter.restore(part.encode('base', true));
    }, /does not fit/);
    assert.deepEqual(weights(adapter), untouched);
  });
});
