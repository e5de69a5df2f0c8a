import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { joinsWave, SamplingQueue, type QueuedSample } from '../../local-backend/sampling-queue.js';
import type { SamplingCalls } from '../../local-backend/sampling-worker.js';
import { takeWave } from '../../shared/model/wave-queue.js';

function queued({ weights = 'a', length = 3, count = 1 } = {}): QueuedSample {
  return {
    adapter: { folder: weights, sha256: weights, rank: 1, alpha: 2 },
    order: {
      prompt: new Int32Array(length).fill(5),
      count,
      maxTokens: 4,
      temperature: 1,
      seed: 0,
      stopTokenIds: [],
      stopStrings: [],
    },
  };
}

const wave = (queue: readonly QueuedSample[]) => takeWave(queue, joinsWave);

describe('a wave of sampling requests', () => {
  it('takes all requests for the same weights and as many samples, in their order', () => {
    const [a, b, c] = [queued(), queued({ length: 7 }), queued()];
    const [other, more] = [queued({ weights: 'b' }), queued({ count: 2 })];
    assert.deepEqual(wave([a, b, other, more, c]), [a, b, c]);
  });

  it('holds at most 256 samples and 8,192 prompt tokens', () => {
    const singles = Array.from({ length: 300 }, () => queued());
    assert.equal(wave(singles).length, 256);
    const groups = Array.from({ length: 20 }, () => queued({ count: 16 }));
    assert.equal(wave(groups).length, 16);
    const long = Array.from({ length: 20 }, () => queued({ length: 1000 }));
    assert.equal(wave(long).length, 8);
    const [longest, short] = [queued({ length: 5000 }), queued({ length: 10 })];
    assert.deepEqual(wave([longest, short]), [longest]);
  });

  it('takes a request that is too large for a wave alone', () => {
    const large = queued({ count: 1000 });
    assert.deepEqual(wave([large, large]), [large]);
  });
});

/** A sampling thread that answers every order with its prompt, and remembers its calls. */
function echo(refuses: (prompt: Int32Array) => boolean = () => false) {
  const calls: number[] = []; // how many orders came with each
  const sample: SamplingCalls['sample'] = ({ orders }) => {
    calls.push(orders.length);
    if (orders.some(({ prompt }) => refuses(prompt))) return Promise.reject(new Error('refused'));
    const answer = (tokens: Int32Array) => ({
      tokens,
      logprobs: new Float32Array(tokens.length),
      stopReason: 'stop' as const,
    });
    return Promise.resolve(orders.map(({ prompt }) => [answer(prompt)]));
  };
  const call = (_name: string, input: never) => sample(input) as Promise<never>;
  return { calls, queue: new SamplingQueue(() => ({ call })) };
}

describe('the sampling queue', () => {
  it('samples side by side what waits, and gives each its own', async () => {
    const { calls, queue } = echo();
    const lengths = [3, 5, 4];
    const asked = lengths.map((length) => queue.sample(queued({ length })));
    assert.equal(queue.depth, 3);
    const answers = await Promise.all(asked);
    assert.deepEqual(
      answers.map(([answer]) => answer!.tokens.length),
      lengths,
    );
    assert.deepEqual(calls, [3]);
    assert.equal(queue.depth, 0);
  });

  it('goes on with what arrived meanwhile', async () => {
    const { calls, queue } = echo();
    await queue.sample(queued());
    await Promise.all([queue.sample(queued()), queue.sample(queued({ weights: 'b' }))]);
    assert.deepEqual(calls, [1, 1, 1]);
  });

  it('fails the request at fault and no other', async () => {
    const { calls, queue } = echo((prompt) => prompt.length === 5);
    const [first, second, third] = await Promise.allSettled(
      [3, 5, 4].map((length) => queue.sample(queued({ length }))),
    );
    assert.equal(first!.status, 'fulfilled');
    assert.equal(second!.status, 'rejected');
    assert.equal(third!.status, 'fulfilled');
    assert.deepEqual(calls, [3, 1, 1, 1]);
  });
});
