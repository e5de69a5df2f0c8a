import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CanaryCheck } from '../../actor/canary-check.js';
import { CanaryNotReproduced } from '../../actor/sampler/refusal.js';
import { EngineSampler } from '../../actor/sampler/engine-sampler.js';
import { CanarySource } from '../../learner/publish/canary-source.js';
import { IdleClock } from '../../learner/step/idle-clock.js';
import { encodeAdapter } from '../../shared/model/lora.js';
import { embeddedModelPath, readModelDirectory } from '../../shared/model/model-directory.js';
import { Scorer } from '../../shared/model/scorer.js';
import { adapterOf } from '../actor/adapters.js';
import { groupRequest, openEngine } from '../actor/sampler/engine-values.js';
import { silent } from '../support/log.js';
import { serveModel } from '../support/model-twin.js';
import { shapeOf } from './shape.js';

const { signal } = new AbortController();
const temperature = 0.8;

describe('the engine of a run in which things go wrong', { timeout: 120_000 }, () => {
  it('rounds have an engine of either protocol', () => {
    const engines = Array.from({ length: 20 }, (_, seed) => shapeOf(seed).engine);
    assert.deepEqual([...new Set(engines)].sort(), ['sglang', 'vllm']);
  });

  for (const kind of ['vllm', 'sglang'] as const) {
    it(`an engine over the real model reproduces the canary of its version, and of no other (${kind})`, async () => {
      const directory = await readModelDirectory(embeddedModelPath);
      const scorer = await Scorer.load(directory, { threads: 1 });
      const adapter = adapterOf(1, directory.config);
      /** The most probable answer, so that drawing shows its tokens. */
      const likelyText = async () => {
        let text = [0, 5, 6];
        while (text.length < 9) {
          const vocabulary = Array.from(
            { length: directory.config.vocabSize },
            (_, token) => token,
          );
          const inputs = vocabulary.map(() => Int32Array.from(text));
          const targets = vocabulary.map((token) => Int32Array.from([...text.slice(1), token]));
          const scored = await scorer.logprobs(inputs, targets, adapter, temperature);
          const last = scored.map((each) => each.at(-1)!);
          text = [...text, last.indexOf(Math.max(...last))];
        }
        return Int32Array.from(text);
      };
      const text = await likelyText();
      const source = new CanarySource({
        run: {
          forward: async (data, _loss, { temperature: heat = 1 }) => ({
            logprobs: await scorer.logprobs(
              data.map(({ tokens }) => tokens),
              data.map(({ targetTokens }) => targetTokens),
              adapter,
              heat,
            ),
            metrics: {},
          }),
        },
        ...{ texts: [text], temperature, arithmetic: 'fp32', log: silent },
        idle: new IdleClock(() => 0),
      });
      const canary = (await source.request(1)())!;
      await using twin = await serveModel(kind, embeddedModelPath);
      await using opened = await openEngine([twin.url], { kind, temperature });
      const { engine, adapters } = opened;
      const options = { tokenizer: { decode: () => '' }, concurrency: 4, segmentTokens: 0 };
      await using sampler = new EngineSampler(engine, { ...options, log: silent });
      const canaries = new CanaryCheck(sampler, 'fp32');
      const load = async (version: number) => {
        const { safetensors } = encodeAdapter(adapterOf(version, directory.config));
        const manifest = { ...adapters.manifest(version, safetensors), canary };
        await sampler.load(manifest, (...what) => canaries.require(manifest, ...what), signal);
      };
      await load(1);
      const policy = { version: 1, adoptsNewer: false };
      const rollouts = await sampler.sample({ ...groupRequest, temperature }, policy, signal);
      assert.equal(rollouts.length, groupRequest.count);
      await assert.rejects(load(2), CanaryNotReproduced);
    });
  }
});
