import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { planSample } from '../../local-backend/sample-plan.js';
import type { ServedModel } from '../../local-backend/served-model.js';
import { characterVocabSize } from '../../shared/model/character-tokenizer.js';
import { parseModelConfig } from '../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../shared/model/model-writer.js';
import { SampleRequest } from '../../shared/tinker/api.js';
import { tinySizes } from '../support/tiny-model.js';

const config = parseModelConfig(qwen3ConfigText(tinySizes), 'config.json');
const model: ServedModel = {
  name: 'base',
  directory: { path: 'nowhere', config, digest: 'digest' },
};

function plan(sampling: Record<string, unknown>, tokens: number[] = [3, 4, 5], more = {}) {
  const request = SampleRequest.parse({
    prompt: { chunks: [{ type: 'encoded_text', tokens }] },
    sampling_params: sampling,
    ...more,
  });
  return planSample(request, model, 77);
}

describe('a sampling request', () => {
  it('takes the defaults of the API', () => {
    const { order, promptLogprobsTemperature } = plan({});
    assert.deepEqual(order, {
      prompt: Int32Array.of(3, 4, 5),
      count: 1,
      maxTokens: 16,
      temperature: 1,
      seed: 77,
      stopTokenIds: [],
      stopStrings: [],
    });
    assert.equal(promptLogprobsTemperature, undefined);
  });

  it('takes a plain string as one stop, and lists of either kind', () => {
    assert.deepEqual(plan({ stop: 'end' }).order.stopStrings, ['end']);
    assert.deepEqual(plan({ stop: ['a', 'b'] }).order.stopStrings, ['a', 'b']);
    assert.deepEqual(plan({ stop: [1, 2] }).order.stopTokenIds, [1, 2]);
  });

  it('takes seeds of 64 bits, and different ones as different', () => {
    const seeds = [0, -1, '9223372036854775807', '9223372036854775806', '18446744073709551615'];
    const taken = seeds.map((seed) => plan({ seed }).order.seed);
    assert.equal(new Set(taken).size, seeds.length);
    assert(taken.every(Number.isSafeInteger));
  });

  it('stops where the positions of the model end', () => {
    assert.equal(plan({ max_tokens: 1000 }).order.maxTokens, tinySizes.maxPositions - 3);
  });

  it('judges the prompt at the temperature of the request, greedy ones at 1', () => {
    const asked = { prompt_logprobs: true };
    assert.equal(plan({ temperature: 0.5 }, [3], asked).promptLogprobsTemperature, 0.5);
    assert.equal(plan({ temperature: 0 }, [3], asked).promptLogprobsTemperature, 1);
  });

  it('is refused when it truncates the distribution', () => {
    assert.throws(() => plan({ top_k: 5 }), /top_k is 5/);
    assert.throws(() => plan({ top_p: 0.9 }), /top_p is 0.9/);
    plan({ top_k: characterVocabSize, top_p: 1 }); // leaves the distribution whole
  });

  it('is refused when the prompt is empty, too long, or of another vocabulary', () => {
    assert.throws(() => plan({}, []), /no tokens/);
    assert.throws(() => plan({}, new Array<number>(tinySizes.maxPositions).fill(3)), /takes 64/);
    assert.throws(() => plan({}, [3, characterVocabSize]), /token 22 at 1/);
  });

  it('is refused when it wants what is not offered', () => {
    assert.throws(() => plan({}, [3], { topk_prompt_logprobs: 4 }), /topk_prompt_logprobs/);
    assert.throws(() => plan({}, [3], { num_samples: 1_000_000 }), /num_samples/);
  });
});
