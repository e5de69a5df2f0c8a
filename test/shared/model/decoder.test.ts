import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Decoder, type Policy } from '../../../shared/model/decoder.js';
import type { Adapter } from '../../../shared/model/lora.js';
import { readWeights } from '../../../shared/model/model-weights.js';
import type { GroupRequest, OnAdoption } from '../../../shared/model/rollout-draft.js';
import type { Tensor } from '../../../shared/model/safetensors.js';
import { lengthAtStop } from '../../../shared/model/stop-strings.js';
import { loadTokenizer } from '../../../shared/model/tokenizer.js';
import { Scorer } from '../../../shared/model/scorer.js';
import { noAdapter } from '../../../shared/model/lora.js';
import { frozen } from '../../../shared/model/weight-source.js';
import { tinyModel, warmAdapter } from '../../support/tiny-model.js';

for (const [hasTiedHead, isSmall] of [
  [true, true],
  [false, false],
] as const)
  describe(`a group decoded with a shared prompt, ${hasTiedHead ? 'tied' : 'untied'} head, as a ${isSmall ? 'small' : 'large'} model`, async () => {
    await using directory = await tinyModel(0, { hasTiedHead });
    const weights = await readWeights(directory);
    const read = () => Promise.resolve(frozen(weights));
    const decoder = new Decoder(directory.config, read, 1, undefined, isSmall);
    const { decode } = await loadTokenizer(directory);
    const scorer = new Scorer(directory.config, weights, 1);
    const adapter = warmAdapter(directory.config, 1);
    const fixed = (): Policy => ({ version: 0, adapter });
    const request: GroupRequest = {
      prompt: Int32Array.of(3, 4, 5, 6, 7),
      count: 12,
      temperature: 0.8,
      maxTokens: 10,
      stopTokenIds: [1, 2],
      seed: 5,
    };

    const score = async (
      tokens: Int32Array,
      policy: Adapter,
      temperature: number,
      prompt = request.prompt,
    ) => {
      const text = Int32Array.of(...prompt, ...tokens);
      const [logprobs] = await scorer.logprobs(
        [text.subarray(0, -1)],
        [text.subarray(1)],
        policy,
        temperature,
      );
      return logprobs!.subarray(prompt.length - 1);
    };

    it('the decoder reports for each token the logprob that the scoring graph gives it', async () => {
      const rollouts = await decoder.sampleGroup(request, fixed);
      assert.equal(rollouts.length, 12);
      for (const { tokens, behaviorLogprobs } of rollouts) {
        const scored = await score(tokens, adapter, 0.8);
        behaviorLogprobs.forEach((logprob, i) => {
          assert.ok(Math.abs(logprob - scored[i]!) <= 1e-5, `${logprob} against ${scored[i]}`);
        });
      }
    });

    it('the decoder ends a rollout at a stop token or at the limit, and reports which', async () => {
      const rollouts = await decoder.sampleGroup(request, fixed);
      const reasons = new Set(rollouts.map(({ stopReason }) => stopReason));
      assert.deepEqual([...reasons].sort(), ['length', 'stop']);
      for (const { tokens, stopReason } of rollouts) {
        assert.equal([1, 2].includes(tokens.at(-1)!), stopReason === 'stop');
        assert.ok(!tokens.subarray(0, -1).some((token) => token === 1 || token === 2));
        if (stopReason === 'length') assert.equal(tokens.length, 10);
      }
    });

    it('the decoder reads the weights again when it could not read them the first time', async () => {
      let reads = 0;
      const unlucky = () => (reads++ === 0 ? Promise.reject(new Error('too many files')) : read());
      const second = new Decoder(directory.config, unlucky, 1, undefined, isSmall);
      await assert.rejects(second.sampleGroup(request, fixed), /too many files/);
      const rollouts = await second.sampleGroup(request, fixed);
      assert.deepEqual(rollouts, await decoder.sampleGroup(request, fixed));
      await second.sampleGroup(request, fixed);
      assert.equal(reads, 2);
    });

    it('the decoder opens the tokenizer again when it could not the first time, and then no more', async () => {
      let opened = 0;
      const unlucky = () =>
        opened++ === 0 ? Promise.reject(new Error('too many files')) : Promise.resolve({ decode });
      const texts = new Decoder(directory.config, read, 1, unlucky, isSmall);
      const withStop = { ...request, stopStrings: ['never drawn'] };
      await assert.rejects(texts.sampleGroup(withStop, fixed), /too many files/);
      for (let i = 0; i < 2; i++) await texts.sampleGroup(withStop, fixed);
      assert.equal(opened, 2);
    });

    it('the decoder ends a rollout with the token that completes a stop string', async () => {
      const texts = new Decoder(directory.config, read, 1, () => Promise.resolve({ decode }));
      for (let seed = 0; seed < 8; seed++) {
        const single = { ...request, count: 1, seed, stopTokenIds: [], maxTokens: 16 };
        const [whole] = await texts.sampleGroup(single, fixed);
        const stop = decode(whole!.tokens.subarray(6, 8));
        const [ended] = await texts.sampleGroup({ ...single, stopStrings: [stop] }, fixed);
        const length = stop === '' ? 16 : lengthAtStop(whole!.tokens, decode, [stop])!;
        assert.deepEqual(ended!.tokens, whole!.tokens.subarray(0, length));
        assert.equal(ended!.stopReason, stop === '' ? 'length' : 'stop');
      }
    });

    it('the decoder is reproducible: the same seed gives the same rollouts, another seed gives others', async () => {
      const first = await decoder.sampleGroup(request, fixed);
      assert.deepEqual(await decoder.sampleGroup(request, fixed), first);
      assert.notDeepEqual(await decoder.sampleGroup({ ...request, seed: 6 }, fixed), first);
    });

    it('a rollout draws by random numbers of its own, whatever the other rollouts of its group do', async () => {
      const four = await decoder.sampleGroup({ ...request, count: 4 }, fixed);
      const two = await decoder.sampleGroup({ ...request, count: 2 }, fixed);
      assert.deepEqual(
        two.map(({ tokens }) => tokens),
        four.slice(0, 2).map(({ tokens }) => tokens),
      );
      assert.notDeepEqual(four[0]!.tokens, four[1]!.tokens);
    });

    it('the decoder takes the most probable token at temperature 0, with its logprob at temperature 1', async () => {
      const greedy = { ...request, temperature: 0, count: 2, stopTokenIds: [] };
      const [a, b] = await decoder.sampleGroup(greedy, fixed);
      assert.deepEqual(a, b);
      const scored = await score(a!.tokens, adapter, 1);
      a!.behaviorLogprobs.forEach((logprob, i) => {
        assert.ok(Math.abs(logprob - scored[i]!) <= 1e-5, `${logprob} against ${scored[i]}`);
      });
      for (let i = 0; i < a!.tokens.length; i++) {
        const chosen = (await score(a!.tokens.subarray(0, i + 1), adapter, 1))[i]!;
        for (let token = 0; token < directory.config.vocabSize; token++) {
          const other = Int32Array.of(...a!.tokens.subarray(0, i), token);
          assert.ok((await score(other, adapter, 1))[i]! <= chosen + 1e-5);
        }
      }
    });

    it('the decoder draws tokens as often as their probabilities say', async () => {
      const draws = 4000;
      const rollouts = await decoder.sampleGroup({ ...request, count: draws, maxTokens: 1 }, fixed);
      for (let token = 0; token < directory.config.vocabSize; token++) {
        const logprob = (await score(Int32Array.of(token), adapter, 0.8))[0]!;
        const probability = Math.exp(logprob);
        const share = rollouts.filter(({ tokens }) => tokens[0] === token).length / draws;
        const fourDeviations = 4 * Math.sqrt((probability * (1 - probability)) / draws);
        assert.ok(
          Math.abs(share - probability) <= fourDeviations + 1e-3,
          `token ${token}: ${share}`,
        );
      }
    });

    it('the decoder adopts a new version between two tokens and records the version of each', async () => {
      const other = warmAdapter(directory.config, 2);
      let asked = 0;
      const changing = (): Policy =>
        asked++ < 4 ? { version: 7, adapter } : { version: 8, adapter: other };
      const rollouts = await decoder.sampleGroup({ ...request, stopTokenIds: [] }, changing);
      for (const { versions } of rollouts)
        assert.deepEqual(versions, [
          [7, 4],
          [8, 6],
        ]);

      const unchanged = await decoder.sampleGroup({ ...request, stopTokenIds: [] }, fixed);
      const prefix = (group: typeof rollouts) => group.map(({ tokens }) => tokens.subarray(0, 4));
      assert.deepEqual(prefix(rollouts), prefix(unchanged));
      assert.notDeepEqual(rollouts[0]!.behaviorLogprobs, unchanged[0]!.behaviorLogprobs);
    });

    it('each token comes from its version alone if the cache is read again after an adoption', async () => {
      const adapters = [
        adapter,
        warmAdapter(directory.config, 2),
        warmAdapter(directory.config, 3),
      ];
      const long = { ...request, prompt: Int32Array.of(9, 8, 3, 4, 5, 6, 7), count: 3, seed: 6 };
      const requests = [request, long].map((each) => ({ ...each, stopTokenIds: [1] }));
      const gaps = async (onAdoption: OnAdoption): Promise<number[]> => {
        let asked = 0;
        const changing = (): Policy => {
          const version = Math.min(2, Math.floor(asked++ / 3));
          return { version, adapter: adapters[version]! };
        };
        const groups = await decoder.sampleGroups(requests, changing, { onAdoption });
        const found: number[] = [];
        for (const [g, { prompt }] of requests.entries()) {
          for (const { tokens, behaviorLogprobs, versions } of groups[g]!) {
            let from = 0;
            for (const [version, count] of versions) {
              const scored = await score(tokens, adapters[version]!, 0.8, prompt);
              for (const end = from + count; from < end; from++) {
                found.push(Math.abs(behaviorLogprobs[from]! - scored[from]!));
              }
            }
          }
        }
        return found;
      };
      assert.ok(Math.max(...(await gaps('reprefill'))) <= 1e-5);
      assert.ok(Math.max(...(await gaps('keep'))) > 1e-3);
    });

    it('the decoder samples the same with LoRA as with weights that LoRA was merged into', async () => {
      const merged = new Decoder(
        directory.config,
        () => Promise.resolve(frozen(mergeLora(weights, adapter))),
        1,
      );
      const base = await merged.sampleGroup(request, () => ({ version: 0, adapter: noAdapter }));
      const adapted = await decoder.sampleGroup(request, fixed);
      base.forEach(({ tokens, behaviorLogprobs }, i) => {
        assert.deepEqual(tokens, adapted[i]!.tokens);
        behaviorLogprobs.forEach((logprob, j) => {
          assert.ok(Math.abs(logprob - adapted[i]!.behaviorLogprobs[j]!) <= 1e-5);
        });
      });
    });

    it('the decoder samples groups side by side as it samples each alone', async () => {
      const requests: GroupRequest[] = [
        request,
        { ...request, prompt: Int32Array.of(8, 3), count: 3, temperature: 1.3, seed: 6 },
        { ...request, prompt: Int32Array.of(9, 3, 5, 6, 4, 8, 7), maxTokens: 4, count: 5 },
        { ...request, prompt: Int32Array.of(3, 9, 9), temperature: 0, count: 2 },
      ];
      const together = await decoder.sampleGroups(requests, fixed);
      for (const [g, alone] of requests.entries()) {
        const rollouts = together[g]!;
        const expected = await decoder.sampleGroup(alone, fixed);
        assert.equal(rollouts.length, alone.count);
        rollouts.forEach(({ tokens, behaviorLogprobs, stopReason }, i) => {
          assert.deepEqual(tokens, expected[i]!.tokens);
          assert.equal(stopReason, expected[i]!.stopReason);
          behaviorLogprobs.forEach((logprob, t) => {
            assert.ok(Math.abs(logprob - expected[i]!.behaviorLogprobs[t]!) <= 1e-5);
          });
        });
      }
    });

    it('the decoder abandons a withdrawn group and finishes the others', async () => {
      const unwanted = { ...request, prompt: Int32Array.of(4, 4) };
      let asked = 0;
      const [abandoned, finished] = await decoder.sampleGroups([unwanted, request], fixed, {
        isWanted: (group) => group !== unwanted || asked++ < 2,
      });
      assert.equal(abandoned, undefined);
      const alone = await decoder.sampleGroup(request, fixed);
      assert.deepEqual(
        finished!.map(({ tokens }) => tokens),
        alone.map(({ tokens }) => tokens),
      );
    });

    it('the decoder refuses a group that exceeds the positions of the model', async () => {
      const tooLong = { ...request, maxTokens: 60 };
      await assert.rejects(
        decoder.sampleGroup(tooLong, fixed),
        /5 tokens and 60 new .* 64 positions/,
      );
    });
  });

/** W + alpha / rank · B·A for every adapted weight. */
function mergeLora(weights: ReadonlyMap<string, Tensor>, adapter: Adapter): Map<string, Tensor> {
  const merged = new Map(weights);
  for (const [key, a] of adapter.tensors) {
    if (!key.endsWith('lora_A')) continue;
    const module = key.replace('.lora_A', '');
    const b = adapter.tensors.get(`${module}.lora_B`)!;
    const name = `model.${module}.weight`;
    const { dims, data } = weights.get(name)!;
    const [out, width] = dims as [number, number];
    const sum = data.slice();
    for (let i = 0; i < out; i++) {
      for (let j = 0; j < width; j++) {
        let update = 0;
        for (let k = 0; k < adapter.rank; k++) {
          update += b.data[i * adapter.rank + k]! * a.data[k * width + j]!;
        }
        sum[i * width + j]! += (adapter.alpha / adapter.rank) * update;
      }
    }
    merged.set(name, { dims, data: sum });
  }
  return merged;
}
