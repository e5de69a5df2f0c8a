import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PermanentError } from '../../../shared/base/errors.js';
import {
  decodeForwardBackwardRequest,
  encodeForwardBackwardResult,
} from '../../../shared/tinker/codec.js';
import {
  AccessRefused,
  BadAnswer,
  RunLost,
  SequenceConflict,
  Unavailable,
} from '../../../shared/tinker/errors.js';
import { FaultyNetwork } from './faulty-network.js';
import { connectTo, ScriptedServer } from './scripted-server.js';
import { adam, datum, StrictRun } from './strict-run.js';

const thresholds = { clip_low_threshold: 0, clip_high_threshold: 4 };

describe('a training run', () => {
  it('a training run sends pipelined calls in order, with ids from 1, each after the previous one was accepted', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);

    const [first, second, metrics] = await Promise.all([
      run.forwardBackward([datum(1, 2), datum(3)], 'cispo', thresholds),
      run.forwardBackward([datum(4)], 'cispo', thresholds),
      run.optimStep(adam),
    ]);
    assert.deepEqual(strict.seqIds, [1, 2, 3]);
    assert.deepEqual(strict.done, ['forward_backward 2', 'forward_backward 1', 'optim_step']);
    assert.deepEqual(first.logprobs, [Float32Array.of(-1, -2), Float32Array.of(-3)]);
    assert.deepEqual(second.metrics, { 'loss:sum': 1 });
    assert.deepEqual(metrics, { 'norm:max': 2 });
  });

  it('a training run does not send an operation before the previous one was accepted', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    let accept = (): void => undefined;
    const accepted = new Promise<void>((resolve) => (accept = resolve));
    server.on('POST save_weights', async () => {
      await accepted;
      return { json: { request_id: 'none' } };
    });
    server.on('POST retrieve_future', ({ json }) =>
      json['request_id'] === 'none'
        ? { json: { path: 'tinker://run-1/weights/a' } }
        : { json: { metrics: null } },
    );

    const saved = run.saveState('a');
    const stepped = run.optimStep(adam);
    while (server.sent('save_weights').length === 0) await new Promise(setImmediate);
    for (let i = 0; i < 20; i++) await new Promise(setImmediate);
    assert.equal(server.sent('optim_step').length, 0);
    accept();
    await Promise.all([saved, stepped]);
    assert.equal(server.sent('optim_step').length, 1);
  });

  it('a training run sends the requests of the protocol, in JSON with every value explicit', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    await run.optimStep(adam);
    assert.equal(await run.saveState('state-1'), 'tinker://run-1/weights/state-1');
    assert.equal(
      await run.saveWeightsForSampler('sampler-1'),
      'tinker://run-1/sampler_weights/sampler-1',
    );
    await run.loadState('tinker://run-1/weights/state-1', { optimizer: false });

    const step = server.sent('optim_step')[0]!;
    assert.equal(step.headers['x-api-key'], 'tml-test');
    assert.equal(step.headers['content-type'], 'application/json');
    assert.deepEqual(step.json, {
      type: 'optim_step',
      adam_params: {
        learning_rate: 0.001,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0,
        grad_clip_norm: 1,
      },
      model_id: 'run-1',
      seq_id: 1,
    });
    assert.deepEqual(server.sent('save_weights')[0]!.json, {
      type: 'save_weights',
      model_id: 'run-1',
      path: 'state-1',
      seq_id: 2,
    });
    assert.deepEqual(server.sent('load_weights')[0]!.json, {
      type: 'load_weights',
      model_id: 'run-1',
      seq_id: 4,
      path: 'tinker://run-1/weights/state-1',
      optimizer: false,
    });
  });

  it('a training run splits a call by the limits of client/config and combines the results', async () => {
    await using server = await ScriptedServer.start();
    server.on('POST client/config', () => ({ json: { fwdbwd_max_chunk_len: 2 } }));
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);

    const data = [1, 2, 3, 4, 5].map((token) => datum(token));
    const [result] = await Promise.all([run.forward(data, 'ppo', {}), run.optimStep(adam)]);
    assert.deepEqual(strict.done, ['forward 2', 'forward 2', 'forward 1', 'optim_step']);
    assert.deepEqual(
      result.logprobs.map((logprobs) => logprobs[0]),
      [-1, -2, -3, -4, -5],
    );
    assert.deepEqual(result.metrics, { 'loss:sum': 5 });
  });

  it('a training run sends dro in requests of one length each, and answers in the order of the data', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    const data = [datum(1), datum(2, 3), datum(4), datum(5, 6, 7), datum(8, 9)];
    const { logprobs, metrics } = await run.forwardBackward(data, 'dro', { beta: 0.1 });
    assert.deepEqual(strict.done, [
      'forward_backward 2',
      'forward_backward 2',
      'forward_backward 1',
    ]);
    assert.deepEqual(
      logprobs.map((values) => [...values]),
      [[-1], [-2, -3], [-4], [-5, -6, -7], [-8, -9]],
    );
    assert.deepEqual(metrics, { 'loss:sum': 5 });
  });

  it('a training run refuses malformed data and dangerous names before it sends a request', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    await assert.rejects(run.forwardBackward([], 'ppo', {}), PermanentError);
    await assert.rejects(run.saveState('../x'), /no checkpoint name/);
    await run.saveState('a');
    await assert.rejects(run.saveWeightsForSampler('a'), /a is already used by a save_weights/);
    assert.deepEqual(strict.done, ['save_weights a']);
  });

  it('a training run refuses logprobs whose number differs from that of the tokens', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    const logprobs = [Float32Array.of(-1)];
    const bytes = encodeForwardBackwardResult('ppo', { logprobs, metrics: {} });
    server.script('POST retrieve_future', { bytes, type: 'application/x-protobuf' });
    await assert.rejects(
      run.forward([datum(1, 2)], 'ppo', {}),
      (error) => error instanceof BadAnswer && /datum 0 has 1 for 2 tokens/.test(error.message),
    );
  });
});

describe('a training run after a failed operation', () => {
  it('a training run refuses the calls after a failed one, then reuses the id that the server did not consume', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(1, 'fail');

    const calls = await Promise.allSettled([
      run.forwardBackward([datum(1)], 'ppo', {}),
      run.forwardBackward([datum(2)], 'ppo', {}),
      run.optimStep(adam),
    ]);
    assert.deepEqual(
      calls.map(({ status }) => status),
      ['fulfilled', 'rejected', 'rejected'],
    );
    const [, failed, behind] = calls.map((call) => 'reason' in call && (call.reason as unknown));
    assert(failed instanceof Unavailable && /out of memory/.test(failed.message));
    assert(behind instanceof SequenceConflict);
    assert.equal(behind.cause, failed);

    await run.optimStep(adam);
    assert.deepEqual(strict.done, ['forward_backward 1', 'optim_step']);
    assert.deepEqual(strict.seqIds.slice(-2), [0, 2]); // the probe, then the id it brought
  });

  it('a training run names the first failure as the cause, even if the conflict that it caused arrives earlier', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    server.on('POST optim_step', ({ json }) => ({ json: { request_id: String(json['seq_id']) } }));
    let tellFirst = (): void => undefined;
    const secondIsKnown = new Promise<void>((resolve) => (tellFirst = resolve));
    server.on('POST retrieve_future', async ({ json }) => {
      if (json['request_id'] === '1') {
        await secondIsKnown;
        return { status: 422, json: { detail: 'Future failed: out of memory' } };
      }
      setTimeout(tellFirst, 50); // so that the conflict has arrived by then
      return { status: 409, json: { detail: 'Sequence conflict: expected 1, got 2.' } };
    });
    const [first, second] = await Promise.allSettled([run.optimStep(adam), run.optimStep(adam)]);
    assert(first.status === 'rejected' && second.status === 'rejected');
    assert(second.reason instanceof SequenceConflict);
    assert.equal(second.reason.cause, first.reason);
  });

  it('a training run continues after the failed id if the server consumed it', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server, true);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, 'fail');
    await assert.rejects(run.forwardBackward([datum(1)], 'ppo', {}), Unavailable);
    await run.optimStep(adam);
    await run.optimStep(adam);
    assert.deepEqual(strict.seqIds, [1, 0, 2, 3]);
  });

  it('a training run sends a different probe each time, since a server may answer a copy from its cache', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, 'fail').set(2, 'fail');
    await assert.rejects(run.optimStep(adam), Unavailable);
    await run.optimStep(adam);
    await assert.rejects(run.optimStep(adam), Unavailable);
    await run.optimStep(adam);
    const probes = server.sent('forward_backward').map(({ body }) => body);
    assert.equal(probes.length, 2);
    assert.notDeepEqual(probes[0], probes[1]);
    for (const probe of probes.map(decodeForwardBackwardRequest)) {
      assert.equal(probe.seqId, 0);
      assert(
        probe.isForwardOnly,
        'a server that does not check ids runs it: it must change nothing',
      );
    }
  });

  it('a training run keeps the id of a request that was refused on arrival, and sends no later call', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, { status: 422, json: { detail: 'Invalid protobuf request: no' } });
    const calls = await Promise.allSettled([
      run.forwardBackward([datum(1)], 'ppo', {}),
      run.optimStep(adam),
    ]);
    assert(calls.every(({ status }) => status === 'rejected'));
    await run.optimStep(adam);
    assert.deepEqual(strict.seqIds, [1, 1]); // no probe: nothing was in doubt
  });

  it('a training run counts on by itself if the server does not give the expected id', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server, true);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, 'fail');
    await assert.rejects(run.forwardBackward([datum(1)], 'ppo', {}), Unavailable);
    const refusal = { status: 422, json: { detail: 'seq_id out of range' } };
    server.script('POST forward_backward', refusal);
    await run.optimStep(adam);
    assert.deepEqual(strict.seqIds, [1, 0, 2]);
  });

  it('a training run is lost if the server expects an earlier id', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    await run.optimStep(adam);
    await run.optimStep(adam);
    strict.nextSeqId = 1;
    await assert.rejects(run.optimStep(adam), SequenceConflict);
    await assert.rejects(run.optimStep(adam), /its state is older/);
    const sent = server.seen.length;
    await assert.rejects(run.saveState('a'), RunLost);
    assert.equal(server.seen.length, sent, 'a lost run is not asked again');
  });

  it('a training run was trained by another client if the server expects a later id than was sent', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.nextSeqId = 7;
    await assert.rejects(run.optimStep(adam), SequenceConflict);
    await assert.rejects(run.optimStep(adam), /another client trains this run/);
  });

  for (const status of [404, 410]) {
    it(`a training run ends with RunLost if the future is gone (${status})`, async () => {
      await using server = await ScriptedServer.start();
      const strict = new StrictRun(server);
      const { client } = await connectTo(server);
      await using _closed = client;
      const run = await strict.create(client);
      server.script('POST retrieve_future', { status, json: { detail: 'gone' } });
      await assert.rejects(run.optimStep(adam), RunLost);
      await assert.rejects(run.optimStep(adam), RunLost);
      assert.equal(server.sent('optim_step').length, 1);
    });
  }
});

describe('an operation whose answer is lost', () => {
  it('an operation with a lost answer is sent again, found done, and its logprobs fetched before the next call', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, 'lose-answer');
    const [result] = await Promise.all([
      run.forwardBackward([datum(1, 2), datum(3)], 'ppo', {}),
      run.optimStep(adam),
    ]);
    assert.deepEqual(strict.seqIds, [1, 1, 2, 3]);
    assert.deepEqual(strict.done, ['forward_backward 2', 'forward 2', 'optim_step']);
    assert.deepEqual(result.logprobs, [Float32Array.of(-1, -2), Float32Array.of(-3)]);
  });

  it('an operation with a lost answer is answered again by a server that recognizes copies', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server, true);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, 'lose-answer');
    await Promise.all([run.forwardBackward([datum(1)], 'ppo', {}), run.optimStep(adam)]);
    assert.deepEqual(strict.seqIds, [1, 1, 2]);
    assert.deepEqual(strict.done, ['forward_backward 1', 'optim_step']);
  });

  it('an operation runs once if its request was lost', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, 'lose-request').set(1, 'lose-request');
    await Promise.all([run.forwardBackward([datum(1)], 'ppo', {}), run.optimStep(adam)]);
    assert.deepEqual(strict.seqIds, [1, 1, 1, 2]);
    assert.deepEqual(strict.done, ['forward_backward 1', 'optim_step']);
  });

  it('an optimizer step with a lost answer runs once, and a save runs again under a new id', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, 'lose-answer').set(2, 'lose-answer');
    assert.deepEqual(await run.optimStep(adam), {});
    assert.equal(await run.saveState('a'), 'tinker://run-1/weights/a');
    assert.deepEqual(strict.seqIds, [1, 1, 2, 2, 3]);
    assert.deepEqual(strict.done, ['optim_step', 'save_weights a', 'save_weights a']);
  });

  it('an operation survives several lost answers, also during its recovery', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, 'lose-answer').set(1, 'lose-answer').set(3, 'lose-answer');
    const [result] = await Promise.all([
      run.forwardBackward([datum(5)], 'ppo', {}),
      run.optimStep(adam),
    ]);
    assert.deepEqual(result.logprobs, [Float32Array.of(-5)]);
    assert.equal(strict.done.filter((name) => name.startsWith('forward_backward')).length, 1);
    assert.equal(strict.done.at(-1), 'optim_step');
  });

  it('an operation is sent again under the same id after a 503 from a proxy', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, { status: 503, bytes: 'no upstream', type: 'text/plain' });
    await run.optimStep(adam);
    assert.deepEqual(strict.seqIds, [1, 1]);
  });

  it('an operation gives up with a log line, and the next one first asks for the expected id', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const lines: string[] = [];
    const { client, time } = await connectTo(server, { lines });
    await using _closed = client;
    const run = await strict.create(client);
    for (let i = 0; i < 1000; i++) strict.mishaps.set(i, 'lose-answer');
    await assert.rejects(run.optimStep(adam), (error) => {
      assert(error instanceof Unavailable);
      assert.match(error.message, /^optim_step at http:\/\/127\.0\.0\.1:\d+\/api\/v1\/optim_step/);
      assert.match(error.message, /gave up after \d+ attempts/);
      return true;
    });
    const waited = time.slept.reduce((sum, ms) => sum + ms, 0);
    assert(waited > 250_000 && waited <= 300_000, `waited ${waited} ms`);
    assert(lines.some((line) => line.includes('no usable answer yet, trying again')));

    strict.mishaps.clear();
    await run.optimStep(adam);
    assert.deepEqual(strict.done, ['optim_step', 'optim_step']);
    assert.deepEqual(strict.seqIds.slice(-2), [0, 2]);
  });
});

describe('a request that was certainly not accepted', () => {
  it('a refused request is sent again after 429, at the time that the server gives', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client, time } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, {
      status: 429,
      json: { detail: 'busy' },
      headers: { 'retry-after': '7' },
    });
    await Promise.all([run.optimStep(adam), run.optimStep(adam)]);
    assert.deepEqual(strict.seqIds, [1, 1, 2]);
    assert.deepEqual(time.slept, [7_000]);
  });

  it('a refused request is sent again if the host could not be reached', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const network = new FaultyNetwork();
    const { client } = await connectTo(server, { fetch: network.fetch });
    await using _closed = client;
    const run = await strict.create(client);
    network.fails('EHOSTUNREACH', 'optim_step');
    await run.optimStep(adam);
    assert.deepEqual(strict.seqIds, [1]);
  });

  it('a refused request is not repeated if the server refuses its key', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    strict.mishaps.set(0, { status: 403, json: { detail: 'Invalid API key' } });
    await assert.rejects(run.optimStep(adam), AccessRefused);
    assert.deepEqual(strict.seqIds, [1]);
  });
});

describe('a server that speaks only the JSON form', () => {
  const refusals = [
    { status: 415, json: { detail: 'Unsupported media type' } },
    { status: 422, json: { detail: [{ type: 'json_invalid', loc: ['body', 0], msg: 'no' }] } },
    { status: 400, json: { detail: 'There was an error parsing the body' } },
  ];
  for (const refusal of refusals) {
    it(`a server without protobuf is recognized by its ${refusal.status} and then sent JSON under the same id`, async () => {
      await using server = await ScriptedServer.start();
      const strict = new StrictRun(server);
      const { client } = await connectTo(server);
      await using _closed = client;
      const run = await strict.create(client);
      server.on('POST forward_backward', ({ headers }) =>
        headers['content-type'] === 'application/json'
          ? { status: 202, json: { request_id: 'json' } }
          : refusal,
      );
      server.script('POST forward', { status: 202, json: { request_id: 'json' } });
      server.script('POST retrieve_future', {
        json: {
          loss_fn_output_type: 'ppo',
          loss_fn_outputs: [{ logprobs: { data: [-1.5, -0.5], dtype: 'float32', shape: [2] } }],
          metrics: { 'loss:sum': 0.75 },
        },
      });
      const result = await run.forwardBackward([datum(5, 6)], 'ppo', thresholds);
      await run.forward([datum(5, 6)], 'ppo', {});

      assert.deepEqual(result.logprobs, [Float32Array.of(-1.5, -0.5)]);
      assert.deepEqual(result.metrics, { 'loss:sum': 0.75 });
      const [poll] = server.sent('retrieve_future').slice(-1);
      assert.equal(poll!.headers.accept, 'application/x-protobuf, application/json');
      assert.equal(server.sent('forward_backward').length, 2, 'protobuf is tried once');
      assert.deepEqual(server.sent('forward_backward')[1]!.json, {
        forward_backward_input: {
          data: [
            {
              model_input: { chunks: [{ type: 'encoded_text', tokens: [5, 6] }] },
              loss_fn_inputs: {
                target_tokens: { data: [5, 6], dtype: 'int64', shape: [2] },
                logprobs: { data: [0, 0], dtype: 'float32', shape: [2] },
                advantages: { data: [0, 0], dtype: 'float32', shape: [2] },
              },
            },
          ],
          loss_fn: 'ppo',
          loss_fn_config: thresholds,
        },
        model_id: 'run-1',
        seq_id: 1,
      });
      const { forward_input, seq_id } = server.sent('forward')[0]!.json;
      assert.equal(seq_id, 2);
      assert(forward_input);
    });
  }

  it('null in the JSON form is read as NaN, which broken weights produce', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    server.script('POST forward_backward', { status: 202, json: { request_id: 'pass' } });
    server.script('POST optim_step', { status: 202, json: { request_id: 'step' } });
    const answers = {
      pass: {
        loss_fn_outputs: [{ logprobs: { data: [-1.5, null], dtype: 'float32', shape: [2] } }],
        metrics: { 'loss:sum': null },
      },
      step: { metrics: { 'grad_norm:mean': null } },
    };
    server.on('POST retrieve_future', ({ json }) => ({
      json: answers[json['request_id'] as keyof typeof answers],
    }));
    const { logprobs, metrics } = await run.forwardBackward([datum(5, 6)], 'ppo', thresholds);
    assert.deepEqual([logprobs, metrics], [[Float32Array.of(-1.5, NaN)], { 'loss:sum': NaN }]);
    assert.deepEqual(await run.optimStep(adam), { 'grad_norm:mean': NaN });
  });
});
