import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { scoresAlone } from '../../../shared/tinker/capability-probe.js';
import { encodeSampleResult } from '../../../shared/tinker/sample-codec.js';
import { BadAnswer, RunLost, StillPending } from '../../../shared/tinker/errors.js';
import type { TinkerClient } from '../../../shared/tinker/client.js';
import { until } from '../../support/waiting.js';
import { connectTo, ScriptedServer, type Reply } from './scripted-server.js';

const sequence = {
  tokens: Int32Array.of(11, 12),
  logprobs: Float32Array.of(-0.5, -0.25),
  stopReason: 'stop' as const,
};
const options = {
  prompt: Int32Array.of(3, 4),
  numSamples: 2,
  maxTokens: 8,
  temperature: 0.7,
  seed: 5,
  stop: [9],
};
const both: Reply = {
  bytes: encodeSampleResult({ sequences: [sequence, sequence] }),
  type: 'application/x-protobuf',
};
const accepted: Reply = { status: 202, json: { request_id: 'sample', model_id: null } };

describe('a sampler', () => {
  it('a sampler sends every value explicitly and returns tokens with their logprobs', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST asample', accepted);
    server.script('POST retrieve_future', both);
    const { client } = await connectTo(server);
    await using _closed = client;
    assert.deepEqual(await client.sampler('shared').sample(options), [sequence, sequence]);

    const { seq_id, ...body } = server.sent('asample')[0]!.json;
    assert(Number.isSafeInteger(seq_id));
    assert.deepEqual(body, {
      type: 'sample',
      num_samples: 2,
      prompt: { chunks: [{ type: 'encoded_text', tokens: [3, 4] }] },
      sampling_params: {
        max_tokens: 8,
        seed: 5,
        stop: [9],
        temperature: 0.7,
        top_k: -1,
        top_p: 1,
      },
      sampling_session_id: 'shared',
      topk_prompt_logprobs: 0,
    });
  });

  it('a sampler gives up a call that the server keeps pending past its deadline', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST asample', accepted);
    const pending = { json: { type: 'try_again', request_id: 'x', queue_state: 'active' } };
    const replies: Reply[] = Array.from({ length: 20 }, () => pending);
    server.script('POST retrieve_future', pending, ...replies, both);
    const { client } = await connectTo(server);
    await using _closed = client;
    const asked = client.sampler('shared').sample({ ...options, deadlineMs: 400 });
    await assert.rejects(asked, (error) => error instanceof StillPending);
    assert(server.sent('retrieve_future').length < 20);
  });

  describe('with a sample that is no longer awaited', () => {
    const pending = { json: { type: 'try_again', request_id: 'x', queue_state: 'active' } };
    const abandon = async (server: ScriptedServer, client: TinkerClient) => {
      const stop = new AbortController();
      server.on('POST retrieve_future', () => {
        stop.abort(new Error('too old'));
        return pending;
      });
      const asked = client.sampler('shared').sample({ ...options, signal: stop.signal });
      await assert.rejects(asked, /too old/);
    };

    it('a sampler cancels it at the server, after a deadline too', async () => {
      await using server = await ScriptedServer.start();
      server.script('POST asample', accepted);
      server.script('POST cancel_future', { status: 204, headers: {} });
      const { client } = await connectTo(server);
      await using _closed = client;
      await abandon(server, client);
      await until(() => server.sent('cancel_future').length === 1);
      server.script('POST retrieve_future', pending);
      const late = client.sampler('shared').sample({ ...options, deadlineMs: 400 });
      await assert.rejects(late, StillPending);
      await until(() => server.sent('cancel_future').length === 2);
      const ids = server.sent('cancel_future').map(({ json }) => json);
      assert.deepEqual(ids, [{ request_id: 'sample' }, { request_id: 'sample' }]);
    });

    it('a sampler asks no more once a server has shown that it lacks the call', async () => {
      await using server = await ScriptedServer.start();
      server.script('POST asample', accepted);
      const { client } = await connectTo(server);
      await using _closed = client;
      for (let i = 0; i < 10; i++) await abandon(server, client);
      const asked = server.sent('cancel_future').length;
      assert(asked >= 1 && asked < 10, `${asked} times`); // the next may be given up before the first answer arrives
    });
  });

  it('a sampler counts from its own first id, since others share the session', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST asample', accepted);
    server.script('POST retrieve_future', both);
    const { client } = await connectTo(server);
    await using _closed = client;
    const [one, other] = [client.sampler('shared'), client.sampler('shared')];
    for (const sampler of [one, one, other]) await sampler.sample(options);
    const [first, second, third] = server.sent('asample').map(({ json }) => Number(json['seq_id']));
    assert.equal(second! - first!, 1);
    assert(Math.abs(third! - first!) > 1000);
  });

  it('a sampler repeats a refused request under the same id', async () => {
    await using server = await ScriptedServer.start();
    const busy = { status: 429, json: { detail: 'full' }, headers: { 'retry-after': '1' } };
    server.script('POST asample', busy, 'cut', accepted);
    server.script('POST retrieve_future', both);
    const { client, time } = await connectTo(server);
    await using _closed = client;
    await client.sampler('shared').sample(options);
    const ids = server.sent('asample').map(({ json }) => json['seq_id']);
    assert.equal(ids.length, 3);
    assert.equal(new Set(ids).size, 1);
    assert.equal(time.slept[0], 1000);
  });

  it('a sampler samples again if the future is lost, a limited number of times', async () => {
    await using server = await ScriptedServer.start();
    const lost = { status: 410, json: { detail: 'promise lost' } };
    server.script('POST asample', accepted);
    server.script('POST retrieve_future', lost, both, lost);
    const { client } = await connectTo(server);
    await using _closed = client;
    const sampler = client.sampler('shared');
    assert.equal((await sampler.sample(options)).length, 2);
    await assert.rejects(sampler.sample(options), RunLost);
    assert.equal(server.sent('asample').length, 2 + 3);
  });

  it('a sampler reads the JSON form, in which null stands for NaN', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST asample', accepted);
    server.script('POST retrieve_future', {
      json: {
        type: 'sample',
        sequences: [{ stop_reason: 'length', tokens: [1, 2], logprobs: [-0.5, null] }],
        prompt_logprobs: [null, -2],
      },
    });
    const { client } = await connectTo(server);
    await using _closed = client;
    const sampler = client.sampler('shared');
    assert.deepEqual(await sampler.logprobs(Int32Array.of(3, 4)), Float32Array.of(NaN, -2));
    const { prompt_logprobs, sampling_params } = server.sent('asample')[0]!.json;
    assert.equal(prompt_logprobs, true);
    assert.equal((sampling_params as { max_tokens: number }).max_tokens, 1);
    assert.deepEqual(await sampler.sample({ ...options, numSamples: 1 }), [
      { tokens: Int32Array.of(1, 2), logprobs: Float32Array.of(-0.5, NaN), stopReason: 'length' },
    ]);
  });

  for (const [name, capabilities, tokens] of [
    ['a server that can', ['sampling', scoresAlone], 0],
    ['another server, which has to draw one', ['sampling'], 1],
  ] as const) {
    it(`a sampler asks for ${tokens} tokens beside scores of ${name}`, async () => {
      await using server = await ScriptedServer.start();
      server.script('GET get_server_capabilities', {
        json: { supported_models: [{ model_name: 'base', capabilities }] },
      });
      server.script('POST asample', accepted);
      const sequences = [{ stop_reason: 'length', tokens: [], logprobs: [] }];
      server.script('POST retrieve_future', { json: { sequences, prompt_logprobs: [null, -2] } });
      const { client } = await connectTo(server);
      await using _closed = client;
      await client.sampler('shared').logprobs(Int32Array.of(3, 4));
      const { sampling_params } = server.sent('asample')[0]!.json;
      assert.equal((sampling_params as { max_tokens: number }).max_tokens, tokens);
    });
  }

  it('a sampler refuses fewer sequences than it requested', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST asample', accepted);
    server.script('POST retrieve_future', both);
    const { client } = await connectTo(server);
    await using _closed = client;
    const sampled = client.sampler('shared').sample({ ...options, numSamples: 3 });
    await assert.rejects(
      sampled,
      (error) => error instanceof BadAnswer && /2 sequences for 3 samples/.test(error.message),
    );
  });

  it('a sampler ends with the signal of the call', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST asample', accepted);
    server.script('POST retrieve_future', 'hang');
    const { client } = await connectTo(server);
    await using _closed = client;
    const call = new AbortController();
    const sampled = client.sampler('shared').sample({ ...options, signal: call.signal });
    while (server.sent('retrieve_future').length === 0) await new Promise(setImmediate);
    call.abort(new Error('ticket expired'));
    await assert.rejects(sampled, /ticket expired/);
  });
});
