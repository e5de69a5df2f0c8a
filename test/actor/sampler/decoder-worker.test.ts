import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { DecoderCalls, DecoderEvent } from '../../../actor/sampler/decoder-worker.js';
import { WorkerCalls } from '../../../shared/service/worker-calls.js';
import { tinyModel } from '../../support/tiny-model.js';
import { publishedAdapter } from '../adapters.js';

const request = {
  ...{ prompt: Int32Array.of(3, 4, 5), count: 8, temperature: 1, maxTokens: 200, seed: 11 },
  stopTokenIds: [],
};

describe('a decoder that reads rollouts again with a new version', { timeout: 60_000 }, () => {
  it('the decoder reports progress after each text that it reads, as after each token', async () => {
    await using model = await tinyModel(1, { maxPositions: 512 });
    const events: DecoderEvent[] = [];
    await using decoder = new WorkerCalls<DecoderCalls, DecoderEvent>(
      new URL('../../support/fast-clock-decoder.js', import.meta.url),
      {
        onEvent: (event) => {
          if (events.push(event) === 1) decoder.post('admit', 2); // the first version has begun
        },
      },
    );
    await decoder.call('start', { modelPath: model.path, threads: 1, onAdoption: 'reprefill' });
    for (const version of [1, 2]) {
      const { bytes, rank, alpha } = publishedAdapter(version, model.config);
      await decoder.call('load', { version, safetensors: bytes, rank, alpha });
    }
    decoder.post('admit', 1);
    const policy = { version: 1, adoptsNewer: true };
    const sampled = await decoder.call('sample', { id: 0, request, policy });
    assert(Array.isArray(sampled));
    assert.deepEqual(
      sampled[0]!.versions.map(([version]) => version),
      [1, 2],
    );
    // The prompt is one text, and each rollout another. All rollouts draw together; nothing precedes the first token.
    const texts = 1 + request.count;
    const alive = events.filter((event) => event === 'alive');
    assert.equal(alive.length, texts + request.maxTokens - 1);
  });
});
