import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import type { Draw, ProveServer } from '../../../actor/sampler/engine.js';
import { EngineSampler } from '../../../actor/sampler/engine-sampler.js';
import type { Prove } from '../../../actor/sampler/sampler.js';
import { TinkerEngine } from '../../../actor/sampler/tinker-engine.js';
import { bandOf } from '../../../shared/rl/canary.js';
import { protobufType } from '../../../shared/tinker/codec.js';
import { encodeSampleResult } from '../../../shared/tinker/sample-codec.js';
import { StillPending } from '../../../shared/tinker/errors.js';
import { NotServed } from '../../../shared/engine/adapter-server.js';
import { silent } from '../../support/log.js';
import { never, until } from '../../support/waiting.js';
import { VllmTwin } from '../../support/vllm-twin.js';
import { ScriptedServer, type Reply } from '../../shared/tinker/scripted-server.js';
import { manifest, unproven } from '../values.js';
import { groupRequest, openEngine } from './engine-values.js';

const pending: Reply = { json: { type: 'try_again', request_id: 'x', queue_state: 'active' } };
const sampled: Reply = {
  bytes: encodeSampleResult({
    sequences: [
      { tokens: Int32Array.of(7), logprobs: Float32Array.of(-1), stopReason: 'length' as const },
    ],
  }),
  type: protobufType,
};

const request = {
  ...{ prompt: Int32Array.of(3, 4), count: 1, maxTokens: 4, temperature: 1, seed: 5 },
  stopTokenIds: [9],
};

describe('a sampler whose backend never answers a call', () => {
  it('a sampler whose backend never answers a call returns the group after the time limit of the call', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST asample', { status: 202, json: { request_id: 'x', model_id: null } });
    server.script('POST retrieve_future', pending, ...Array<Reply>(40).fill(pending), sampled);
    const { signal } = new AbortController();
    const where = { baseUrl: server.url, apiKey: 'tml-test', modelName: 'base' };
    const engine = await TinkerEngine.connect({ ...where, log: silent, signal });
    await using sampler = new EngineSampler(engine, {
      ...{ tokenizer: { decode: () => '' }, concurrency: 1, segmentTokens: 0 },
      ...{ stallSeconds: 0.2, log: silent },
    });
    await sampler.load(manifest(3), unproven, signal);
    sampler.admit(3);
    const policy = { version: 3, adoptsNewer: false };
    await assert.rejects(sampler.sample(request, policy, signal), StillPending);
    assert(server.sent('retrieve_future').length < 40);
  });
});

describe('a version that is published again with another session of the backend', () => {
  it('is sampled through the session that has proven it until the other one has', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST asample', { status: 202, json: { request_id: 'x', model_id: null } });
    server.script('POST retrieve_future', sampled);
    const { signal } = new AbortController();
    const where = { baseUrl: server.url, apiKey: 'tml-test', modelName: 'base' };
    const engine = await TinkerEngine.connect({ ...where, log: silent, signal });
    await using _engine = engine;
    const session = (samplingSessionId: string) => ({ ...manifest(3), samplingSessionId });
    await engine.load(session('first'), unproven, signal);
    const refuses = () => Promise.reject(new Error('not reproduced'));
    await assert.rejects(engine.load(session('second'), refuses, signal), /not reproduced/);
    using place = engine.place();
    await place.generate(3, request, 1_000, signal);
    await engine.load(session('third'), unproven, signal);
    await place.generate(3, request, 1_000, signal);
    const asked = server
      .sent('asample')
      .map(({ body }) => JSON.parse(String(body)) as { sampling_session_id: string });
    assert.deepEqual(
      asked.map(({ sampling_session_id: asks }) => asks),
      ['first', 'third'],
    );
  });
});

describe('a sampler whose answers become longer', () => {
  it('a call that exceeds its limit doubles the limit of the next one', async () => {
    let clock = 0;
    const needed = [1_000, 300_000, 300_000, 300_000, 300_000]; // ms of each call
    const limits: number[] = [];
    const generate = (_: number, { count }: typeof request, limitMs: number) => {
      limits.push(limitMs);
      const takes = needed.shift()!;
      clock += Math.min(takes, limitMs);
      if (takes > limitMs) return Promise.reject(new Error('no answer in time'));
      const tokens = { tokens: Int32Array.of(7), logprobs: Float32Array.of(-1) };
      return Promise.resolve(Array(count).fill({ ...tokens, stopReason: 'stop' }));
    };
    const engine = {
      place: () => ({ generate, [Symbol.dispose]: () => undefined }),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
    await using sampler = new EngineSampler(engine as never, {
      ...{ tokenizer: { decode: () => '' }, concurrency: 1, segmentTokens: 0, log: silent },
      now: () => clock,
    });
    sampler.admit(1);
    const policy = { version: 1, adoptsNewer: false };
    const sample = () => sampler.sample(request, policy, new AbortController().signal);
    await sample();
    for (let i = 0; i < 3; i++) await assert.rejects(sample(), /no answer in time/);
    await sample();
    assert.deepEqual(limits, [3_600_000, 60_000, 120_000, 240_000, 480_000]);
  });
});

describe('a group of which one rollout cannot be continued', () => {
  it('the calls for its other rollouts are ended for the same reason', async () => {
    const failure = new Error('this call fails');
    const ended: unknown[] = []; // the reasons of calls that were ended
    let calls = 0;
    const generate = (_: number, { count }: typeof request, __: number, signal: AbortSignal) => {
      calls += 1;
      const tokens = { tokens: Int32Array.of(7), logprobs: Float32Array.of(-1) };
      if (calls === 1)
        return Promise.resolve(Array(count).fill({ ...tokens, stopReason: 'length' }));
      if (calls === 2) return Promise.reject(failure);
      return once(signal, 'abort').then(() => {
        ended.push(signal.reason);
        throw signal.reason;
      });
    };
    const engine = {
      place: () => ({ generate, [Symbol.dispose]: () => undefined }),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
    await using sampler = new EngineSampler(engine as never, {
      ...{ tokenizer: { decode: () => '' }, concurrency: 1, segmentTokens: 1, log: silent },
    });
    sampler.admit(1);
    const policy = { version: 1, adoptsNewer: true };
    const { signal } = new AbortController();
    const wasted: number[] = [];
    const progress = {
      onDraw: () => undefined,
      noneDrawn: () => assert.fail('the first call has drawn tokens'),
      wasted: (tokens: number) => wasted.push(tokens),
    };
    await assert.rejects(
      sampler.sample({ ...request, count: 3 }, policy, signal, progress),
      failure,
    );
    assert.deepEqual(ended, [failure, failure]);
    assert.deepEqual(wasted, [3]); // those of the first call
  });
});

describe('a version that the engine has lost', () => {
  const lost = new Error('its session is gone');

  /** A sampler with versions 1 and 2, of which the first is lost, and 2 can sample after two calls. */
  function withoutFirst() {
    const asked: number[] = [];
    const generate = (version: number, { count }: typeof request) => {
      asked.push(version);
      if (asked.length === 2) sampler.admit(2);
      if (version === 1) return Promise.reject(new NotServed(lost, { maxAttempts: 12 }));
      const tokens = { tokens: Int32Array.of(7), logprobs: Float32Array.of(-1) };
      return Promise.resolve(Array(count).fill({ ...tokens, stopReason: 'stop' }));
    };
    const engine = {
      place: () => ({ generate, [Symbol.dispose]: () => undefined }),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
    const sampler = new EngineSampler(engine as never, {
      ...{ tokenizer: { decode: () => '' }, concurrency: 1, segmentTokens: 0, log: silent },
      retryDelayMs: 1,
    });
    sampler.admit(1);
    return { sampler, asked };
  }

  it('a group that may adopt newer versions is sampled with the next one', async () => {
    const { sampler, asked } = withoutFirst();
    const drawn: (number | 'none')[] = [];
    const progress = {
      onDraw: (version: number) => drawn.push(version),
      noneDrawn: () => drawn.push('none'),
      wasted: () => undefined,
    };
    const { signal } = new AbortController();
    const [rollout] = await sampler.sample(
      request,
      { version: 1, adoptsNewer: true },
      signal,
      progress,
    );
    assert.deepEqual(rollout!.versions, [[2, 1]]);
    assert.deepEqual(
      [asked, drawn],
      [
        [1, 1, 2],
        [1, 'none', 1, 'none', 2],
      ],
    );
  });

  it('a group that may not goes back once a newer one can sample', async () => {
    const { sampler, asked } = withoutFirst();
    const policy = { version: 1, adoptsNewer: false };
    await assert.rejects(sampler.sample(request, policy, new AbortController().signal), lost);
    assert.deepEqual(asked, [1, 1]);
  });
});

describe('a version that the engine cannot sample', () => {
  const refusal = new Error('out of memory');
  const tokens = { tokens: Int32Array.of(7), logprobs: Float32Array.of(-1) };
  const sampled = { ...tokens, stopReason: 'stop' };

  function samplerOf(engine: object) {
    const nothing = { [Symbol.asyncDispose]: () => Promise.resolve() };
    return new EngineSampler({ ...nothing, ...engine } as never, {
      ...{ tokenizer: { decode: () => '' }, concurrency: 1, segmentTokens: 0, log: silent },
      retryDelayMs: 1,
    });
  }

  it('the first failed draw of a load ends it and its other draws, since a newer version may be published meanwhile', async () => {
    let asked = 0;
    let ended = 0; // by the signal of the proof
    const draw: Draw = async (_, __, ending) => {
      if (++asked === 1) throw new NotServed(refusal);
      if (asked > 20) throw new Error(`asked ${asked} times`);
      await once(ending, 'abort').finally(() => ended++);
      throw ending.reason;
    };
    await using sampler = samplerOf({
      ...{ scoresPrompts: false, mostProbable: 1 },
      load: (_: unknown, prove: ProveServer, signal: AbortSignal) => prove(draw, signal),
    });
    const texts = [Int32Array.from({ length: 31 }, (_, i) => i)];
    const places = Array.from({ length: 30 }, (_, i): [number, number] => [0, i + 1]);
    const band = bandOf('bf16', false);
    const prove: Prove = async (score, ending) => {
      await score({ texts, places, temperature: 1, band }, ending);
    };
    const { signal } = new AbortController();
    await assert.rejects(sampler.load(manifest(1), prove, signal), { message: 'out of memory' });
    assert.deepEqual([asked, ended], [8, 7]); // eight at once, of 30
  });

  /** A sampler with these versions at the start, at which version 1 fails; 3 can sample from the third call on. */
  function failing(admitted: readonly number[], failure = new NotServed(refusal)) {
    let calls = 0;
    const generate = (_: number, { count }: typeof request) => {
      calls += 1;
      if (calls === 3) sampler.admit(3);
      if (calls < 6) return Promise.reject(failure);
      return Promise.resolve(Array(count).fill(sampled));
    };
    const sampler = samplerOf({ place: () => ({ generate, [Symbol.dispose]: () => undefined }) });
    for (const version of admitted) sampler.admit(version);
    return { sampler, calls: () => calls };
  }

  it('a group that may use no other goes back once a newer one was proven since its first failure', async () => {
    const { sampler, calls } = failing([1, 2]);
    const { signal } = new AbortController();
    await assert.rejects(sampler.sample(request, { version: 1, adoptsNewer: false }, signal), {
      message: 'out of memory',
    });
    assert.equal(calls(), 3);
  });

  it('a group that may use no other waits for the engine as long as nothing shows that it serves another', async () => {
    const { sampler, calls } = failing([1, 2, 3]);
    const { signal } = new AbortController();
    await sampler.sample(request, { version: 1, adoptsNewer: false }, signal);
    assert.equal(calls(), 6);
  });

  it('a group that may use no other waits for an engine that only has too much to do', async () => {
    const { sampler, calls } = failing([1, 2], new NotServed(refusal, { isBusy: true }));
    const { signal } = new AbortController();
    await sampler.sample(request, { version: 1, adoptsNewer: false }, signal);
    assert.equal(calls(), 6);
  });
});

describe('a call at which the engine itself fails', () => {
  it('goes back after five failures, but not before the engine has served others', async () => {
    const failure = new Error('out of memory');
    const sampled = { tokens: Int32Array.of(7), logprobs: Float32Array.of(-1), stopReason: 'stop' };
    let failures = 0;
    const generate = (_: number, { seed }: typeof request) => {
      if (seed !== 13) return Promise.resolve([sampled]);
      failures += 1;
      return Promise.reject(new NotServed(failure, { isServerFailure: true }));
    };
    const engine = {
      place: () => ({ generate, [Symbol.dispose]: () => undefined }),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
    await using sampler = new EngineSampler(engine as never, {
      ...{ tokenizer: { decode: () => '' }, concurrency: 2, segmentTokens: 0, log: silent },
      retryDelayMs: 1,
    });
    sampler.admit(1);
    const policy = { version: 1, adoptsNewer: true };
    const ask = (seed: number) => sampler.sample({ ...request, count: 1, seed }, policy, never);
    const failing = ask(13);
    await until(() => failures > 10);
    const before = failures;
    await ask(14);
    await assert.rejects(failing, failure);
    assert(failures >= before + 4 && failures <= before + 6, `${before}, then ${failures}`);
  });
});

describe('a sampler that cuts rollouts after a time', () => {
  it('a rollout ends between two calls once its time is over, with what it has, and others are not touched', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    let clock = 0;
    const options = { tokenizer: { decode: () => '' }, concurrency: 1, segmentTokens: 2 };
    await using sampler = new EngineSampler(engine, {
      ...{ ...options, rolloutSeconds: 60, log: silent, now: () => clock },
    });
    const { signal } = new AbortController();
    await sampler.load(adapters.manifest(1), unproven, signal);
    const group = { ...groupRequest, maxTokens: 20, stopTokenIds: [] };
    for (const adoptsNewer of [true, false]) {
      const policy = { version: 1, adoptsNewer };
      const whole = await sampler.sample(group, policy, signal);
      assert.deepEqual(
        whole.map(({ tokens }) => tokens.length),
        [20, 20, 20],
      );
      const progress = {
        onDraw: () => (clock += 10_000), // each call takes 10 s
        ...{ noneDrawn: () => undefined, wasted: () => undefined },
      };
      const cut = await sampler.sample({ ...group, count: 1 }, policy, signal, progress);
      assert.deepEqual(
        cut.map(({ tokens, behaviorLogprobs, versions, stopReason }) => [
          ...[tokens.length, behaviorLogprobs.length, versions, stopReason],
        ]),
        [[12, 12, [[1, 12]], 'length']],
      );
    }
  });
});
