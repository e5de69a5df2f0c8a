import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { encodeSampleResult } from '../../../shared/tinker/sample-codec.js';
import { BadRequest, StillPending } from '../../../shared/tinker/errors.js';
import { TinkerHttp } from '../../../shared/tinker/http.js';
import { SamplingPoller } from '../../../shared/tinker/sampling-poller.js';
import { silent } from '../../support/log.js';
import { gate } from '../../support/waiting.js';
import { FaultyNetwork } from './faulty-network.js';
import { connectTo, ScriptedServer, type Reply, type Seen } from './scripted-server.js';

const options = { prompt: Int32Array.of(3, 4), numSamples: 1, maxTokens: 8, temperature: 1 };
const nothing: Reply = { json: { completions: [], cursor: 0 } };
const detail = (status: number, text: string): Reply => ({ status, json: { detail: text } });
const tick = () => new Promise(setImmediate);

/**
 * A server whose samples are `sample-0`, `sample-1`, …, each with its number as its only token, and whose shared polls
 * are held until samples settle.
 */
class PollingServer implements AsyncDisposable {
  readonly #settled: { request_id: string; state: string }[] = [];
  #asked = 0;
  #held: (() => void)[] = [];
  most = 0; // shared polls at once

  private constructor(readonly http: ScriptedServer) {}

  static async start(flag = true): Promise<PollingServer> {
    const server = new PollingServer(await ScriptedServer.start());
    const { http } = server;
    http.on('POST client/config', () => ({ json: { sample_use_retrieve_futures: flag } }));
    http.on('POST asample', () => ({
      status: 202,
      json: { request_id: `sample-${server.#asked++}` },
    }));
    http.on('POST retrieve_futures', (seen) => server.#poll(seen));
    http.on('POST retrieve_future', ({ json }) => {
      const number = Number(String(json['request_id']).split('-')[1]);
      const tokens = Int32Array.of(number);
      const sequence = { tokens, logprobs: Float32Array.of(-1), stopReason: 'stop' as const };
      const bytes = encodeSampleResult({ sequences: [sequence] });
      return { bytes, type: 'application/x-protobuf' };
    });
    return server;
  }

  get isPolled(): boolean {
    return this.#held.length > 0;
  }

  async asked(count: number): Promise<void> {
    while (this.#asked < count || !this.isPolled) await tick();
  }

  settle(...numbers: readonly number[]): void {
    for (const number of numbers) {
      this.#settled.push({ request_id: `sample-${number}`, state: 'finished' });
    }
    this.release();
  }

  /** Answers the held polls, with whatever has settled. */
  release(): void {
    for (const free of this.#held.splice(0)) free();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.http[Symbol.asyncDispose]();
  }

  async #poll({ json }: Seen): Promise<Reply> {
    const cursor = Number(json['prev_cursor']);
    if (this.#settled.length === cursor) {
      const { opened, open } = gate();
      this.#held.push(open);
      this.most = Math.max(this.most, this.#held.length);
      await opened;
    }
    const completions = this.#settled.slice(cursor);
    return { json: { completions, cursor: this.#settled.length } };
  }
}

async function setUp(flag = true, network = new FaultyNetwork()) {
  const server = await PollingServer.start(flag);
  const lines: string[] = [];
  const { client, time } = await connectTo(server.http, { fetch: network.fetch, lines });
  const sampler = client.sampler('shared');
  const token = async (signal?: AbortSignal) =>
    (await sampler.sample({ ...options, ...(signal && { signal }) }))[0]!.tokens[0];
  const polls = () => server.http.sent('retrieve_futures').map(({ json }) => json);
  const single = () => server.http.sent('retrieve_future').map(({ json }) => json['request_id']);
  return {
    ...{ server, lines, time, sampler, token, polls, single, network },
    close: () => client[Symbol.asyncDispose](),
    async [Symbol.asyncDispose]() {
      await client[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

describe('samples at a server that has one poll for all of a client', () => {
  it('pending samples share one poll, and each result is fetched once it is there', async () => {
    await using scene = await setUp();
    const { server, token, polls, single } = scene;
    const samples = [token(), token(), token()];
    await server.asked(3);
    assert.deepEqual(single(), []);
    server.settle(1);
    assert.equal(await samples[1], 1);
    await server.asked(3);
    server.settle(2, 0);
    assert.deepEqual(await Promise.all(samples), [0, 1, 2]);
    assert.equal(server.most, 1);
    assert.deepEqual(single().sort(), ['sample-0', 'sample-1', 'sample-2']);
    assert.deepEqual(
      polls().map((poll) => poll['prev_cursor']),
      [0, 1],
    );
  });

  it('a poll names the client by the ids of its samples, and the results that have been fetched', async () => {
    await using scene = await setUp();
    const { server, token, polls } = scene;
    const first = token();
    await server.asked(1);
    server.settle(0);
    await first;
    const second = token();
    await server.asked(2);
    server.settle(1);
    await second;
    const third = token();
    await server.asked(3);
    server.settle(2);
    await third;
    const asked = server.http.sent('asample').map(({ json }) => Number(json['seq_id']));
    const clones = new Set(asked.map((id) => Math.floor(id / 1e9)));
    assert.equal(clones.size, 1);
    const [cloned_sampler_id] = clones;
    assert(cloned_sampler_id! > 0 && asked.every(Number.isSafeInteger));
    const target = { type: 'sampling_session', sampling_session_id: 'shared', cloned_sampler_id };
    assert.deepEqual(polls(), [
      { target, prev_cursor: 0, retrieved_request_ids: [] },
      { target, prev_cursor: 1, retrieved_request_ids: ['sample-0'] },
      { target, prev_cursor: 2, retrieved_request_ids: ['sample-1'] },
    ]);
  });

  it('a sample that settles before its submission is answered is not waited for', async () => {
    await using scene = await setUp();
    const { server, token, single } = scene;
    const slow = token();
    await server.asked(1);
    const { opened, open } = gate();
    server.http.on('POST asample', async () => {
      await opened;
      return { status: 202, json: { request_id: 'sample-7' } };
    });
    const fast = token();
    while (server.http.sent('asample').length < 2) await tick();
    server.settle(7);
    await server.asked(1); // the poll that follows has seen it
    open();
    assert.equal(await fast, 7);
    server.settle(0);
    assert.equal(await slow, 0);
    assert.deepEqual(single(), ['sample-7', 'sample-0']);
  });

  it('a server without the flag is polled for each sample', async () => {
    await using scene = await setUp(false);
    assert.equal(await scene.token(), 0);
    assert.deepEqual([scene.polls().length, scene.single().length], [0, 1]);
  });

  it('samples poll one by one from then on if the call is refused', async () => {
    await using scene = await setUp();
    const { server, token, polls, lines } = scene;
    server.http.script('POST retrieve_futures', detail(404, 'Not Found'));
    assert.deepEqual(await Promise.all([token(), token()]), [0, 1]);
    assert.equal(await token(), 2);
    assert.equal(polls().length, 1);
    assert.equal(lines.filter((line) => line.includes('polled one by one')).length, 1);
  });

  it('a sample that failed ends with the error of its own future', async () => {
    await using scene = await setUp();
    scene.server.http.script('POST retrieve_future', {
      json: { error: 'the prompt is too long', category: 'user' },
    });
    const sampled = scene.token();
    await scene.server.asked(1);
    scene.server.settle(0);
    await assert.rejects(
      sampled,
      (error) =>
        error instanceof BadRequest && /^asample at .*prompt is too long/.test(error.message),
    );
  });

  it('a shared poll is repeated after faults of the network and of the server', async () => {
    await using scene = await setUp();
    const done = { json: { completions: [{ request_id: 'sample-0' }], cursor: 1 } };
    scene.server.http.script(
      'POST retrieve_futures',
      ...['cut' as const, detail(503, 'starting'), detail(400, 'proxy'), nothing, done],
    );
    assert.equal(await scene.token(), 0);
    assert.equal(scene.polls().length, 5);
    const [first, second, third, pause] = scene.time.slept;
    assert.deepEqual([first, second, third, pause], [500, 1_000, 2_000, 50]);
  });

  it('samples are drawn again if the server of their poll has ended', async () => {
    await using scene = await setUp();
    const { server, network, token, single } = scene;
    network.fails('ECONNREFUSED', 'retrieve_futures');
    const sampled = token();
    await server.asked(2);
    server.settle(1);
    assert.equal(await sampled, 1);
    assert.deepEqual(single(), ['sample-1']);
  });

  it('a sample past its deadline ends, and the others are waited for', async () => {
    await using scene = await setUp();
    const { server, sampler, token } = scene;
    const late = sampler.sample({ ...options, deadlineMs: 40 });
    await server.asked(1);
    const patient = token();
    await server.asked(2);
    server.release(); // pending: the client pauses for 50 ms of its clock
    await server.asked(2);
    server.release();
    await assert.rejects(
      late,
      (error) => error instanceof StillPending && /^asample at/.test(error.message),
    );
    await server.asked(2);
    server.settle(1);
    assert.equal(await patient, 1);
  });

  it('a cancelled sample leaves the others, and the poll ends with the last one', async () => {
    await using scene = await setUp();
    const { server, token } = scene;
    const [one, other] = [new AbortController(), new AbortController()];
    const samples = [token(one.signal), token(other.signal)];
    await server.asked(2);
    one.abort(new Error('no longer wanted'));
    await assert.rejects(samples[0]!, /no longer wanted/);
    server.release();
    await server.asked(2); // polled again for the other
    other.abort(new Error('nor this'));
    await assert.rejects(samples[1]!, /nor this/);
    const next = token();
    while (scene.polls().length < 3) await tick();
    server.settle(2);
    assert.equal(await next, 2);
  });

  it('a sample that is submitted while the last poll is being ended is polled for', async () => {
    await using scene = await setUp();
    const { server, polls } = scene;
    const http = new TinkerHttp({ baseUrl: server.http.url, apiKey: 'tml-test', log: silent });
    const poller = new SamplingPoller(http, { samplingSessionId: 'shared', clone: 1 });
    const [first, second] = [new AbortController(), new AbortController()];
    const unwanted = await poller.submit(() => Promise.resolve('sample-0'), first.signal, 60_000);
    while (!server.isPolled) await tick();
    first.abort(new Error('no longer wanted'));
    const wanted = await poller.submit(() => Promise.resolve('sample-1'), second.signal, 60_000);
    await assert.rejects(unwanted.settled, /no longer wanted/);
    while (polls().length < 2) await tick();
    server.settle(1);
    await wanted.settled;
  });

  it('pending samples end when the client is closed', async () => {
    await using scene = await setUp();
    const sampled = scene.token();
    await scene.server.asked(1);
    await scene.close();
    await assert.rejects(sampled, /client is closed/);
  });
});
