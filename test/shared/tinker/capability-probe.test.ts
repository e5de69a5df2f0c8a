import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  callsText,
  optionalCalls,
  probeAdapters,
  probePromptLogprobs,
  promptLogprobs,
} from '../../../shared/tinker/capability-probe.js';
import { AdapterOutOfReach, Unavailable } from '../../../shared/tinker/errors.js';
import { markHandled } from '../../../shared/base/task-scope.js';
import { never } from '../../support/waiting.js';
import { connectTo, ScriptedServer, type Reply } from './scripted-server.js';

const detail = (status: number, text: string): Reply => ({ status, json: { detail: text } });

describe('the probe of a server’s calls', () => {
  it('every optional call refuses the empty body with which it is asked for', () => {
    for (const [call, schema] of Object.entries(optionalCalls)) {
      assert.equal(schema.safeParse({}).success, false, call);
    }
  });

  it('a call is there if its answer is about the body, missing if it is about the path, and otherwise unknown', async () => {
    await using server = await ScriptedServer.start();
    const replies: Record<string, Reply> = {
      load_weights: detail(422, 'path: Field required'),
      unload_model: detail(400, 'model_id is required'),
      get_info: { status: 500, bytes: 'Internal Server Error', type: 'text/plain' },
      save_weights_external: detail(405, 'Method Not Allowed'),
      copy_weights: detail(403, 'this key only samples'),
      retrieve_futures: detail(503, 'starting'),
      cancel_future: detail(404, 'request_id undefined was never issued'),
      join_sampling_session: 'cut',
    };
    for (const [call, reply] of Object.entries(replies)) server.script(`POST ${call}`, reply);
    const { client } = await connectTo(server);
    await using _closed = client;
    const offered = await client.probeCalls();
    assert.deepEqual(offered, {
      has: ['load_weights', 'unload_model', 'get_info', 'cancel_future'],
      lacks: ['save_weights_external', 'create_custom_loss'],
      unknown: ['copy_weights', 'retrieve_futures', 'join_sampling_session'],
    });
    assert.equal(
      callsText(offered),
      'load_weights, unload_model, get_info, cancel_future; without save_weights_external, create_custom_loss; ' +
        'unknown: copy_weights, retrieve_futures, join_sampling_session',
    );
    assert.deepEqual(server.sent('load_weights')[0]!.json, {});
    for (const call of Object.keys(optionalCalls)) assert.equal(server.sent(call).length, 1, call);
  });
});

describe('the probe of adapters', () => {
  it('a fault of the server while it is asked for an adapter is not taken for a lack', async () => {
    const fault = new Unavailable({ operation: 'archive', url: 'there', detail: 'no answer' });
    const failing = () => Promise.reject(fault);
    const none = () => Promise.reject(new AdapterOutOfReach('no archives'));
    await assert.rejects(
      probeAdapters(failing, () => Promise.resolve('tinker://run/external_weights/x')),
      fault,
    );
    await assert.rejects(probeAdapters(none, failing), fault);
  });
});

describe('the probe of prompt logprobs', () => {
  const sampled = (prompt_logprobs?: (number | null)[]): Reply => ({
    json: {
      sequences: [{ stop_reason: 'length', tokens: [1], logprobs: [-1] }],
      ...(prompt_logprobs && { prompt_logprobs }),
    },
  });
  const accepted: Reply = { status: 202, json: { request_id: 'sample' } };
  const failed = (category: string): Reply => ({ json: { error: 'no such thing', category } });

  const cases: [string, Reply, Reply, known: string][] = [
    ['given', accepted, sampled([null, -2]), 'yes'],
    ['left out', accepted, sampled(), 'no'],
    ['not a number', accepted, sampled([null, null]), 'no'],
    ['refused at once', detail(400, 'prompt_logprobs are not supported'), sampled(), 'no'],
    ['refused later', accepted, failed('user'), 'no'],
    ['lost by a fault of the server', accepted, failed('server'), 'unknown'],
  ];
  for (const [name, submitted, result, known] of cases) {
    it(`prompt logprobs that are ${name} are reported as ${known}`, async () => {
      await using server = await ScriptedServer.start();
      server.script('POST create_sampling_session', {
        status: 201,
        json: { sampling_session_id: 'base-sampler' },
      });
      server.script('POST asample', submitted);
      server.script('POST retrieve_future', result);
      const { client } = await connectTo(server);
      await using _closed = client;
      const found = await client.probePromptLogprobs('base');
      assert.equal(found.known, known, found.reason);
      assert.equal(found.reason === undefined, known === 'yes');
      const [opened] = server.sent('create_sampling_session');
      assert.equal(opened!.json['base_model'], 'base');
      const [asked] = server.sent('asample');
      const { prompt_logprobs, num_samples, sampling_params } = asked!.json;
      const { max_tokens } = sampling_params as { max_tokens: number };
      assert.deepEqual([prompt_logprobs, num_samples, max_tokens], [true, 1, 1]);
    });
  }

  /** The question at a server that never answers the opening of a sampler. */
  async function unopened(caller: AbortSignal, limitMs?: number) {
    const server = await ScriptedServer.start();
    server.script('POST create_sampling_session', 'hang');
    const { client } = await connectTo(server);
    const open = async () =>
      client.sampler(await client.createSamplingSession('tinker://run-1/sampler_weights/v-1'));
    return { server, client, asked: markHandled(probePromptLogprobs(open, caller, limitMs)) };
  }

  it('prompt logprobs are unknown if no sampler opens in time, also if that fails later', async () => {
    const { server, client, asked } = await unopened(never, 20);
    await using _server = server;
    await using _client = client; // the opening fails at its end
    const { known, reason } = await asked;
    assert.equal(known, 'unknown');
    assert.match(reason!, /timeout/);
  });

  it('the question for prompt logprobs ends with its caller while a sampler opens', async () => {
    const caller = new AbortController();
    const { server, client, asked } = await unopened(caller.signal);
    await using _server = server;
    await using _client = client;
    caller.abort(new Error('no longer wanted'));
    await assert.rejects(asked, /no longer wanted/);
  });

  it('a server that lists prompt logprobs is believed, since the question may load a model', async () => {
    await using server = await ScriptedServer.start();
    const capabilities = ['training', 'sampling', promptLogprobs];
    server.script('GET get_server_capabilities', {
      json: { supported_models: [{ model_name: 'base', capabilities }] },
    });
    const { client } = await connectTo(server);
    await using _closed = client;
    assert.deepEqual(await client.probePromptLogprobs('base'), { known: 'yes' });
    assert.equal(server.sent('create_sampling_session').length, 0);
  });

  const models: [string, object, samples: string][] = [
    ['lists training alone', { capabilities: ['training'] }, 'no'],
    ['lists both', { capabilities: ['training', 'sampling'] }, 'yes'],
    ['says that it has no capacity to sample', { trainable: true, sampleable: false }, 'no'],
    ['says that it samples', { sampleable: true }, 'yes'],
    ['says nothing', {}, 'unknown'],
  ];
  for (const [name, model, samples] of models) {
    it(`a server that ${name} ${samples === 'no' ? 'is not asked to sample' : 'may be asked'}`, async () => {
      await using server = await ScriptedServer.start();
      server.script('GET get_server_capabilities', {
        json: { supported_models: [{ model_name: 'base', ...model }] },
      });
      server.script('POST create_sampling_session', detail(400, 'no'));
      const { client } = await connectTo(server);
      await using _closed = client;
      assert.equal(client.samples('base'), samples);
      assert.equal((await client.probePromptLogprobs('base')).known, 'no');
      const asked = server.sent('create_sampling_session').length;
      assert.equal(asked, samples === 'no' ? 0 : 1);
    });
  }
});
