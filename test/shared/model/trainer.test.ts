import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Gradients } from '../../../shared/model/adamw.js';
import type { Adapter } from '../../../shared/model/lora.js';
import { readWeights } from '../../../shared/model/model-weights.js';
import { Trainer } from '../../../shared/model/trainer.js';
import type { Datum } from '../../../shared/rl/datum.js';
import { lossAndGradient, LossName, lossSettings } from '../../../shared/rl/losses.js';
import { createRandom } from '../../../shared/base/random.js';
import { tinyModel, warmAdapter } from '../../support/tiny-model.js';

const random = createRandom('trainer test');
const floats = (length: number, low: number, high: number) =>
  Float32Array.from({ length }, () => low + (high - low) * random.next());
const tokens = (length: number) => Int32Array.from({ length }, () => random.int(22));

/** Two sequences of different length, so that one of them is padded. */
const data: Datum[] = [7, 4].map((length) => ({
  tokens: tokens(length),
  targetTokens: tokens(length),
  inputs: {
    weights: floats(length, 0, 1),
    logprobs: floats(length, -4, -2),
    advantages: floats(length, -1, 1),
  },
}));

const given = { clip_low_threshold: 0.5, clip_high_threshold: 1.5, beta: 0.3 };
const settings = LossName.options.map(
  (name) => [name, lossSettings(name, given, 'server')] as const,
);

describe('the training graph of a whole model', async () => {
  await using directory = await tinyModel();
  const trainer = new Trainer(directory.config, await readWeights(directory), 1);
  const adapter = warmAdapter(directory.config, 1);

  for (const [name, config] of settings) {
    it(`the training graph gives gradients of ${name} that agree with finite differences`, async () => {
      const gradients: Gradients = new Map();
      await trainer.forwardBackward(
        adapter,
        data,
        name,
        { ...config, temperature: 0.9 },
        gradients,
      );

      // One random direction through all parameters at once compares every gradient.
      const directions = new Map(
        [...adapter.tensors].map(([key, tensor]) => [key, floats(tensor.data.length, -1, 1)]),
      );
      const lossAt = async (step: number) => {
        const moved = new Map(
          [...adapter.tensors].map(([key, { dims, data: at }]) => [
            key,
            { dims, data: at.map((value, i) => value + step * directions.get(key)![i]!) },
          ]),
        );
        const weights = name === 'cispo' ? await frozenRatio(trainer, adapter, config) : undefined;
        const { lossSum } = await trainer.forwardBackward(
          { ...adapter, tensors: moved },
          weights ?? data,
          weights === undefined ? name : 'cross_entropy',
          { ...config, temperature: 0.9 },
          new Map(),
        );
        return lossSum;
      };
      const step = 2e-3;
      const measured = ((await lossAt(step)) - (await lossAt(-step))) / (2 * step);
      let derived = 0;
      for (const [key, gradient] of gradients) {
        gradient.forEach((value, i) => (derived += value * directions.get(key)![i]!));
      }
      assert.ok(Math.abs(derived) > 0.05, `the direction has a slope: ${derived}`);
      const error = Math.abs(measured - derived) / Math.abs(derived);
      assert.ok(error < 1e-2, `derived ${derived}, measured ${measured}`);
    });
  }

  it('the training graph computes each loss as its closed form does', async () => {
    for (const [name, config] of settings) {
      const result = await trainer.forwardBackward(adapter, data, name, config, new Map());
      const expected = data.reduce(
        (sum, datum, i) =>
          sum + lossAndGradient(name, result.logprobs[i]!, datum.inputs, config).loss,
        0,
      );
      const error = Math.abs(result.lossSum - expected);
      assert.ok(error < 1e-4 * (1 + Math.abs(expected)), `${name}: ${result.lossSum}, ${expected}`);
    }
  });

  it('the training graph gives a group with a shared prompt the same results as its rollouts one by one', async () => {
    const prompt = tokens(6);
    const group = [5, 3, 1].map((length): Datum => {
      const text = Int32Array.of(...prompt, ...tokens(length));
      const own = (values: Float32Array) =>
        Float32Array.of(...new Array<number>(5).fill(0), ...values);
      return {
        tokens: text.subarray(0, -1),
        targetTokens: text.subarray(1),
        inputs: {
          weights: own(floats(length, 0, 1)),
          logprobs: own(floats(length, -4, -2)),
          advantages: own(floats(length, -1, 1)),
        },
      };
    });
    for (const [name, config] of settings) {
      const together: Gradients = new Map();
      const packed = await trainer.forwardBackward(adapter, group, name, config, together);
      const apart: Gradients = new Map();
      let lossSum = 0;
      for (const [i, datum] of group.entries()) {
        const single = await trainer.forwardBackward(adapter, [datum], name, config, apart);
        lossSum += single.lossSum;
        single.logprobs[0]!.forEach((logprob, j) => {
          assert.ok(Math.abs(logprob - packed.logprobs[i]![j]!) < 1e-5, `${name} ${i} ${j}`);
        });
      }
      assert.ok(Math.abs(packed.lossSum - lossSum) < 1e-4 * (1 + Math.abs(lossSum)), name);
      for (const [key, gradient] of apart) {
        gradient.forEach((value, j) => {
          const found = together.get(key)![j]!;
          assert.ok(Math.abs(found - value) < 1e-4 * (1 + Math.abs(value)), `${name} ${key} ${j}`);
        });
      }
    }
  });

  it('the training graph refuses a datum that does not fit the loss or the model, and names it', async () => {
    const refused = (datum: Datum, why: RegExp) =>
      assert.rejects(trainer.forwardBackward(adapter, [datum], 'ppo', {}, new Map()), why);
    const { advantages: _, ...without } = data[0]!.inputs;
    await refused(
      { ...data[0]!, inputs: without },
      /ppo: data\[0\] needs 7 advantages, found none/,
    );
    const short = { ...data[0]!.inputs, logprobs: floats(3, -1, 0) };
    await refused({ ...data[0]!, inputs: short }, /logprobs has 3 elements for 7 tokens/);
    await refused({ ...data[0]!, targetTokens: tokens(2) }, /target_tokens has 2 elements for 7/);
    const unknown = data[0]!.tokens.with(2, 999);
    await refused({ ...data[0]!, tokens: unknown }, /token 999 of a vocabulary of 22/);
    const inputs = { logprobs: floats(65, -4, -2), advantages: floats(65, -1, 1) };
    const long = { tokens: tokens(65), targetTokens: tokens(65), inputs };
    await refused(long, /has 65 tokens; the model takes 64/);
    await assert.rejects(
      trainer.forward(adapter, [long], 1),
      /sequence 0 has 65 tokens; the model takes 64/,
    );
  });
});

/** cispo's clipped ratio is a constant for its gradient: that of cross-entropy with weights clip(r)·A. */
async function frozenRatio(
  trainer: Trainer,
  adapter: Adapter,
  config: Record<string, number>,
): Promise<Datum[]> {
  const logprobs = await trainer.forward(adapter, data, 0.9);
  return data.map(({ inputs, ...datum }, row) => ({
    ...datum,
    inputs: {
      weights: inputs.advantages!.map((advantage, i) => {
        const ratio = Math.exp(logprobs[row]![i]! - inputs.logprobs![i]!);
        const low = config['clip_low_threshold']!;
        return advantage * Math.min(Math.max(ratio, low), config['clip_high_threshold']!);
      }),
    },
  }));
}
