import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';
import { encodeForwardBackwardResult } from '../../../shared/tinker/codec.js';
import {
  AccessRefused,
  BadAnswer,
  BadRequest,
  RunLost,
  SequenceConflict,
  StillPending,
  Unavailable,
} from '../../../shared/tinker/errors.js';
import { pollTimeoutMs, retrieve } from '../../../shared/tinker/future.js';
import { TinkerHttp } from '../../../shared/tinker/http.js';
import { optimStepType } from '../../../shared/tinker/result-types.js';
import type { TrainingRun } from '../../../shared/tinker/training-run.js';
import { silent } from '../../support/log.js';
import { never } from '../../support/waiting.js';
import { connectTo, ScriptedServer, type FakeTime, type Reply } from './scripted-server.js';
import { adam, datum, StrictRun } from './strict-run.js';

const stepped: Reply = { json: { metrics: { 'norm:max': 2 }, type: null } };
const plain500: Reply = { status: 500, bytes: 'Internal Server Error', type: 'text/plain' };
const detail = (status: number, text: string): Reply => ({ status, json: { detail: text } });

describe('polling a future', () => {
  // Every row of §2.6 of the protocol reference after which the client polls again.
  const goesOn: [string, Reply[], polls: number][] = [
    ['try_again', [pending('try_again')], 2],
    ['try_again with a 408', [{ status: 408, ...pending('try_again') }], 2],
    ['a 408 from a proxy', [{ status: 408, bytes: 'timeout', type: 'text/plain' }], 2],
    ['complete_metadata', [{ json: { status: 'complete_metadata', response_payload_size: 9 } }], 2],
    ['a bare 500', [plain500, plain500], 3],
    ['a 503', [detail(503, 'starting')], 2],
    ['a 429', [detail(429, 'slow down')], 2],
    ['a 402 while the account is settled', [detail(402, 'billing')], 2],
    ['three 400s', [detail(400, 'a'), detail(400, 'b'), detail(400, 'c')], 4],
    ['a cut connection', ['cut'], 2],
  ];
  for (const [name, replies, polls] of goesOn) {
    it(`polling continues after ${name}`, async () => {
      await using scene = await setUp(...replies, stepped);
      assert.deepEqual(await scene.run.optimStep(adam), { 'norm:max': 2 });
      assert.equal(scene.server.sent('retrieve_future').length - 1, polls); // 1 for create_model
      assert.equal(scene.server.sent('optim_step').length, 1, 'the operation is not sent again');
    });
  }

  const ends: [string, Reply, new (...args: never[]) => Error, RegExp][] = [
    ['a user error', { json: { error: 'bad loss', category: 'user' } }, BadRequest, /bad loss/],
    ['a server error', { json: { error: 'oom', category: 'server' } }, Unavailable, /oom/],
    [
      'an error of a category that is new',
      { json: { error: 'oops', category: 'new' } },
      Unavailable,
      /oops/,
    ],
    [
      'a conflict told as an error',
      { json: { error: 'Sequence conflict: expected 3, got 2.', category: 'user' } },
      SequenceConflict,
      /expected 3/,
    ],
    ['a 401', detail(401, 'Missing API key'), AccessRefused, /Check the API key/],
    ['a 403', detail(403, 'not yours'), AccessRefused, /not yours/],
    ['a 404', detail(404, 'Future not found'), RunLost, /Restore the run/],
    [
      'a 404 for a checkpoint',
      detail(404, 'Failed to retrieve future: Checkpoint x not found'),
      BadRequest,
      /Checkpoint x/,
    ],
    ['a 409', detail(409, 'Sequence conflict: expected 4, got 2.'), SequenceConflict, /expected 4/],
    [
      "an operation's own 408, which would come for ever",
      detail(408, 'Failed to retrieve future: Timeout when waiting for sequence ID'),
      SequenceConflict,
      /Timeout when waiting/,
    ],
    ['a 410', detail(410, 'promise lost'), RunLost, /promise lost/],
    [
      'a 422 for an error inside the operation',
      detail(422, 'Future failed: Server error: out of memory'),
      Unavailable,
      /out of memory/,
    ],
    ['a 501, which names no such call', detail(501, 'Not Implemented'), BadRequest, /Not Impl/],
    ['any other 422', detail(422, 'Future failed: no such loss'), BadRequest, /no such loss/],
    ['a 418', detail(418, 'teapot'), BadRequest, /teapot/],
    ['null, which a spoiled future of TuFT holds', { json: null }, BadAnswer, /null/],
    ['a body that is not JSON', { bytes: '<html>', type: 'text/html' }, BadAnswer, /<html>/],
  ];
  for (const [name, reply, kind, message] of ends) {
    it(`polling ends with ${kind.name} at ${name}`, async () => {
      await using scene = await setUp(reply);
      await assert.rejects(scene.run.optimStep(adam), (error: unknown) => {
        assert(error instanceof kind, String(error));
        assert.match(error.message, message);
        assert.match(error.message, /^optim_step at http/);
        return true;
      });
      assert.equal(scene.server.sent('retrieve_future').length - 1, 1);
    });
  }

  it('polling gives up on a 400 that persists', async () => {
    await using scene = await setUp(detail(400, 'no'));
    await assert.rejects(scene.run.optimStep(adam), BadRequest);
    assert.equal(scene.server.sent('retrieve_future').length - 1, 4);
  });

  it('polling gives up after five minutes of errors, but not while the future is pending', async () => {
    const pendings = Array.from({ length: 300 }, () => pending('try_again'));
    await using scene = await setUp(...pendings, plain500);
    scene.time.slept.length = 0;
    await assert.rejects(scene.run.optimStep(adam), Unavailable);
    const waits = scene.time.slept.filter((ms) => ms > 50);
    const waited = waits.reduce((sum, ms) => sum + ms, 0);
    assert.equal(scene.time.slept.length - waits.length, 300, '50 ms after each pending answer');
    assert(waited > 250_000 && waited <= 300_000, `waited ${waited} ms`);
  });

  it('polling goes on for as long as SkyRL ends each poll by its 408', async () => {
    const held = Array.from({ length: 40 }, () => detail(408, 'Timeout waiting for result'));
    await using scene = await setUp(...held, stepped);
    assert.deepEqual(await scene.run.optimStep(adam), { 'norm:max': 2 });
    assert.equal(scene.server.sent('retrieve_future').length - 1, 41);
  });

  it('polling gives up after five minutes of cut connections', async () => {
    await using scene = await setUp('cut');
    await assert.rejects(
      scene.run.optimStep(adam),
      (error) => error instanceof Unavailable && !(error instanceof StillPending),
    );
  });

  it('polling waits as long as Retry-After says', async () => {
    const headers = { 'retry-after': '11' };
    await using scene = await setUp({ status: 429, json: {}, headers }, stepped);
    await scene.run.optimStep(adam);
    assert.deepEqual(scene.time.slept, [11_000]);
  });

  it('polling requests protobuf if the result has that form, and numbers its polls', async () => {
    const logprobs = [Float32Array.of(-1)];
    await using scene = await setUp(pending('try_again'), {
      bytes: encodeForwardBackwardResult('ppo', { logprobs, metrics: {} }),
      type: 'application/x-protobuf; charset=binary',
    });
    assert.deepEqual((await scene.run.forward([datum(1)], 'ppo', {})).logprobs, logprobs);
    const polls = scene.server.sent('retrieve_future').slice(1);
    for (const [i, { headers, json }] of polls.entries()) {
      assert.equal(headers.accept, 'application/x-protobuf, application/json');
      assert.equal(headers['x-tinker-request-iteration'], String(i));
      assert.equal(headers['x-tinker-request-type'], 'ForwardBackward');
      assert.deepEqual(json, { request_id: 'future-1', allow_metadata_only: false });
    }
  });

  it('polling refuses malformed protobuf', async () => {
    await using scene = await setUp({ bytes: 'xx', type: 'application/x-protobuf' });
    await assert.rejects(scene.run.forward([datum(1)], 'ppo', {}), BadAnswer);
  });

  it('polling waits 150 s for a silent answer, more than the 120 s of TuFT, then polls again', async () => {
    await using scene = await setUp('hang', stepped);
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      const metrics = scene.run.optimStep(adam);
      while (scene.server.sent('retrieve_future').length < 2) await new Promise(setImmediate);
      mock.timers.tick(149_999);
      for (let i = 0; i < 20; i++) await new Promise(setImmediate);
      assert.equal(scene.server.sent('retrieve_future').length, 2);
      mock.timers.tick(1);
      assert.deepEqual(await metrics, { 'norm:max': 2 });
    } finally {
      mock.timers.reset();
    }
  });

  it('polling ends at once when the client is closed', async () => {
    await using scene = await setUp('hang');
    const metrics = scene.run.optimStep(adam);
    while (scene.server.sent('retrieve_future').length < 2) await new Promise(setImmediate);
    await scene.close();
    await assert.rejects(metrics, /client is closed/);
  });
});

describe('polls that a server holds for longer than we wait', () => {
  const future = { operation: 'optim_step', requestId: 'slow', type: optimStepType };

  /**
   * A server that is silent for some polls, each of which lasts for as long as its limit.
   *
   * @param isAlive whether it answers other questions meanwhile.
   */
  function silentFor(polls: number, isAlive = true) {
    let now = 0;
    let asked = 0;
    const http = new TinkerHttp({
      ...{ baseUrl: 'http://tinker.example', apiKey: 'tml-test', log: silent },
      now: () => now,
      sleep: () => Promise.resolve(),
      fetch: async (url, init) => {
        if (new Request(url).url.endsWith('/healthz')) {
          if (isAlive) return Response.json({ status: 'ready' });
          mock.timers.tick(pollTimeoutMs);
          init!.signal!.throwIfAborted();
        }
        if (asked++ === polls) return Response.json({ metrics: { 'norm:max': 2 } });
        now += pollTimeoutMs;
        mock.timers.tick(pollTimeoutMs);
        init!.signal!.throwIfAborted();
        return Promise.reject(new Error('the poll has no limit'));
      },
    });
    return { http, asked: () => asked };
  }

  beforeEach(() => {
    mock.timers.enable({ apis: ['setTimeout'] });
  });
  afterEach(() => {
    mock.timers.reset();
  });

  it('such polls are repeated until there is a result', async () => {
    const { http, asked } = silentFor(20);
    assert.deepEqual(await retrieve(http, future, never), { 'norm:max': 2 });
    assert.equal(asked(), 21);
  });

  it('a server that answers nothing is given up after five minutes', async () => {
    const { http, asked } = silentFor(20, false);
    await assert.rejects(
      retrieve(http, future, never),
      (error) => error instanceof Unavailable && !(error instanceof StillPending),
    );
    assert(asked() <= 3, String(asked()));
  });

  it('such polls end at the deadline of the operation', async () => {
    const { http, asked } = silentFor(Infinity);
    await assert.rejects(retrieve(http, future, never, 10 * pollTimeoutMs), StillPending);
    assert.equal(asked(), 11);
  });
});

function pending(type: string) {
  return { json: { type, request_id: 'x', queue_state: 'active' } };
}

/** A run whose polls, once it is created, get these replies. */
async function setUp(...replies: Reply[]): Promise<
  AsyncDisposable & {
    server: ScriptedServer;
    run: TrainingRun;
    time: FakeTime;
    close(): Promise<void>;
  }
> {
  const server = await ScriptedServer.start();
  const strict = new StrictRun(server);
  const { client, time } = await connectTo(server);
  const run = await strict.create(client);
  server.script('POST retrieve_future', ...(replies as [Reply, ...Reply[]]));
  const close = () => client[Symbol.asyncDispose]();
  return {
    server,
    run,
    time,
    close,
    async [Symbol.asyncDispose]() {
      await close();
      await server[Symbol.asyncDispose]();
    },
  };
}
