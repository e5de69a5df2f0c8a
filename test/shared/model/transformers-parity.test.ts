import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { describe, it } from 'node:test';
import { paddedIntegers } from '../../../shared/model/packing.js';
import { Decoder } from '../../../shared/model/decoder.js';
import { Graph } from '../../../shared/model/graph/graph.js';
import { floatOutput, Session } from '../../../shared/model/graph/session.js';
import { adaptedModules, loraFeeds } from '../../../shared/model/lora-graph.js';
import { noAdapter, type Adapter } from '../../../shared/model/lora.js';
import { readWeights } from '../../../shared/model/model-weights.js';
import { Scorer } from '../../../shared/model/scorer.js';
import { sequenceLogits } from '../../../shared/model/sequence-graph.js';
import { frozen } from '../../../shared/model/weight-source.js';
import { Trainer } from '../../../shared/model/trainer.js';
import type { Datum } from '../../../shared/rl/datum.js';
import { goldenFolder, greatestDifference, readGoldenModel } from '../../support/golden.js';

/*
 * Each folder holds a model directory as transformers saves it, an adapter as peft saves it, and
 * what the two make of them: see test/compat/golden. All of it is computed in float32. Weights in
 * half precision are widened as they are read, which is exact, so that they have the same bounds.
 */
const logitBound = 1e-4; // absolute
const gradientBound = 1e-3; // relative, of each matrix

const variants = readdirSync(goldenFolder).filter((name) => /^(qwen|llama)/.test(name));

it('the golden models include every family', () => {
  for (const family of ['qwen3', 'qwen2', 'llama']) {
    assert.ok(variants.some((name) => name.startsWith(family)));
  }
});

for (const variant of variants)
  describe(`transformers' ${variant}`, async () => {
    const { directory, adapter, sequences, temperature, value } = await readGoldenModel(variant);
    const { config } = directory;
    const weights = await readWeights(directory);

    const logitsOf = async (policy: Adapter, tokens: Int32Array) => {
      const graph = new Graph();
      const modules = adaptedModules(policy);
      graph.output('logits', sequenceLogits(graph, config, frozen(weights), modules).logits);
      const session = await Session.create(graph, 1);
      const feeds = { tokens: paddedIntegers([tokens], tokens.length), ...loraFeeds(policy) };
      return floatOutput(await session.run(feeds), 'logits');
    };

    it('the graph computes the logits of transformers', async () => {
      for (const [i, tokens] of sequences.entries()) {
        const logits = await logitsOf(noAdapter, tokens);
        assert.ok(greatestDifference(logits, value(`logits.${i}`)) <= logitBound);
      }
    });

    it('the graph with an adapter computes the logits of peft', async () => {
      for (const [i, tokens] of sequences.entries()) {
        const logits = await logitsOf(adapter, tokens);
        assert.ok(greatestDifference(logits, value(`adapted_logits.${i}`)) <= logitBound);
        assert.ok(greatestDifference(logits, value(`logits.${i}`)) > 0.1, 'the adapter matters');
      }
    });

    it('the graph computes the loss and the gradients for A and B of torch', async () => {
      const trainer = new Trainer(config, weights, 1);
      const data = sequences.map((tokens, i): Datum => ({
        tokens: tokens.subarray(0, -1),
        targetTokens: tokens.subarray(1),
        inputs: { logprobs: value(`behavior.${i}`), advantages: value(`advantages.${i}`) },
      }));
      const gradients = new Map<string, Float32Array>();
      const { lossSum } = await trainer.forwardBackward(
        adapter,
        data,
        'importance_sampling',
        { temperature },
        gradients,
      );
      const [loss] = value('loss');
      const terms = data.flatMap(({ inputs }) => [...inputs.advantages!.map(Math.abs)]);
      const size = terms.reduce((sum, term) => sum + term, 0); // of a sum that nearly cancels
      assert.ok(Math.abs(lossSum - loss!) <= 1e-5 * size, `${lossSum} is not ${loss}`);
      for (const key of adapter.tensors.keys()) {
        const expected = value(`gradient.base_model.model.model.${key}.weight`);
        const error = Math.hypot(...gradients.get(key)!.map((x, i) => x - expected[i]!));
        const length = Math.hypot(...expected);
        assert.ok(length > 0 && error <= gradientBound * length, `${key}: ${error} of ${length}`);
      }
    });

    it('a decoded rollout has the logprobs that the scoring graph gives its tokens', async () => {
      const decoder = new Decoder(config, () => Promise.resolve(frozen(weights)), 1);
      const scorer = new Scorer(config, weights, 1);
      const prompt = sequences[1]!.subarray(0, 5);
      const maxTokens = sequences[1]!.length - prompt.length;
      const request = { prompt, count: 3, temperature, maxTokens, stopTokenIds: [], seed: 1 };
      const rollouts = await decoder.sampleGroup(request, () => ({ version: 0, adapter }));
      for (const { tokens, behaviorLogprobs } of rollouts) {
        const text = Int32Array.of(...prompt, ...tokens);
        const [scored] = await scorer.logprobs(
          [text.subarray(0, -1)],
          [text.subarray(1)],
          adapter,
          temperature,
        );
        const own = scored!.subarray(prompt.length - 1);
        assert.ok(greatestDifference(behaviorLogprobs, own) <= logitBound);
      }
    });
  });
