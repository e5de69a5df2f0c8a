import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { LocalBackend } from '../../local-backend/local-backend.js';
import { decodeAdapter } from '../../shared/model/lora.js';
import { optionalCalls, probePromptLogprobs } from '../../shared/tinker/capability-probe.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import { protobufType } from '../../shared/tinker/codec.js';
import { BadRequest, RunLost } from '../../shared/tinker/errors.js';
import { apiKey, imitation, modelName, startOn, Wire } from '../local-backend/running-backend.js';
import { silent } from '../support/log.js';
import { RecordingProxy, type Exchange, type Lacking } from '../support/recording-proxy.js';
import { tinyModel } from '../support/tiny-model.js';
import { never } from '../support/waiting.js';

const model = { baseModel: modelName, rank: 4, seed: 3 };
const data = [imitation([3, 4, 5, 6, 7]), imitation([8, 9, 10])];
const rollouts = data.map((datum) => {
  const like = (value: number) => new Float32Array(datum.tokens.length).fill(value);
  return { ...datum, inputs: { ...datum.inputs, logprobs: like(-2), advantages: like(0.5) } };
});
const adam = {
  learningRate: 1e-2,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0,
  gradClipNorm: 0,
};

describe('the Tinker client on the local backend', () => {
  let folder: Awaited<ReturnType<typeof tinyModel>>;
  let backend: LocalBackend;
  let client: TinkerClient;
  /** Answers to lose, by the end of their path: the server does the work and the client gets no answer. */
  const toLose: string[] = [];

  before(async () => {
    folder = await tinyModel();
    backend = await startOn(folder.path, { pollMs: 200, gapWaitMs: 2_000 });
    client = await TinkerClient.connect({
      baseUrl: backend.url,
      apiKey,
      log: silent,
      signal: never,
      sleep: () => Promise.resolve(),
      fetch: async (input, init) => {
        const response = await fetch(input, init);
        const lost = toLose.findIndex((path) => response.url.endsWith(path));
        if (lost === -1) return response;
        toLose.splice(lost, 1);
        await response.body?.cancel();
        throw new TypeError('fetch failed', { cause: { code: 'ECONNRESET' } });
      },
    });
  });
  after(async () => {
    await client[Symbol.asyncDispose]();
    await backend[Symbol.asyncDispose]();
    await folder[Symbol.asyncDispose]();
  });

  it('the Tinker client trains pipelined and reaches the same numbers from a saved state', async () => {
    const run = await client.createLoraModel(model);
    assert.deepEqual(await run.info(), {
      baseModel: modelName,
      loraRank: 4,
      tokenizerId: modelName,
    });
    const losses = await Promise.all(
      [1, 2, 3].map(async () => {
        const trained = run.forwardBackward(data, 'cross_entropy', {});
        const stepped = run.optimStep(adam);
        await stepped;
        return (await trained).metrics['loss:sum']!;
      }),
    );
    assert(losses[2]! < losses[0]!, `the loss did not fall: ${losses.join(', ')}`);

    const statePath = await run.saveState('state-3');
    const [before] = [await run.forward(data, 'cross_entropy', {})];
    const restored = await client.restoreLoraModel({ ...model, statePath });
    assert.deepEqual(await restored.forward(data, 'cross_entropy', {}), before);
    for (const each of [run, restored]) {
      await Promise.all([each.forwardBackward(data, 'cross_entropy', {}), each.optimStep(adam)]);
    }
    assert.deepEqual(
      await restored.forward(data, 'cross_entropy', {}),
      await run.forward(data, 'cross_entropy', {}),
    );
  });

  it('the Tinker client neither loses nor repeats work when answers are lost', async () => {
    const [smooth, bumpy] = [
      await client.createLoraModel(model),
      await client.createLoraModel(model),
    ];
    const train = async (run: typeof smooth) => {
      const calls = [1, 2].flatMap(() => [
        run.forwardBackward(data, 'cross_entropy', {}),
        run.optimStep(adam).then(() => undefined),
      ]);
      return Promise.all(calls);
    };
    const expected = await train(smooth);
    toLose.push('/forward_backward', '/optim_step', '/retrieve_future', '/forward_backward');
    assert.deepEqual(await train(bumpy), expected);
    assert.equal(toLose.length, 0);
  });

  it('the Tinker client reaches the same numbers in JSON if protobuf is refused', async () => {
    const spoken: string[] = [];
    await using older = await TinkerClient.connect({
      baseUrl: backend.url,
      apiKey,
      log: silent,
      signal: never,
      fetch: async (input, init) => {
        const headers = new Headers(init?.headers);
        const path = new URL(input).pathname.slice('/api/v1/'.length);
        if (path.startsWith('forward')) spoken.push(`${path} ${headers.get('content-type')!}`);
        // A server older than SDK 0.25's neither reads nor writes protobuf.
        if (headers.get('content-type') === protobufType) {
          return Response.json({ detail: 'Unsupported media type' }, { status: 415 });
        }
        headers.set('accept', 'application/json');
        return fetch(input, { ...init, headers });
      },
    });
    const losses = ['cross_entropy', 'importance_sampling'] as const;
    const train = async (run: Awaited<ReturnType<typeof client.createLoraModel>>) => {
      const results = [];
      for (const loss of losses) {
        results.push(await run.forwardBackward(rollouts, loss, {}));
        await run.optimStep(adam);
        results.push(await run.forward(rollouts, loss, {}));
      }
      return results;
    };
    const inJson = await train(await older.createLoraModel(model));
    assert.deepEqual(inJson, await train(await client.createLoraModel(model)));
    assert.deepEqual(spoken, [
      `forward_backward ${protobufType}`, // tried once
      'forward_backward application/json',
      'forward application/json',
      'forward_backward application/json',
      'forward application/json',
    ]);
  });

  it('the Tinker client continues after a failed operation', async () => {
    const run = await client.createLoraModel(model);
    const unknownToken = [imitation([3, 2 ** 20, 5])];
    const failed = run.forwardBackward(unknownToken, 'cross_entropy', {});
    await assert.rejects(failed, BadRequest);
    await run.forwardBackward(data, 'cross_entropy', {});
    await run.optimStep(adam);
    await assert.rejects(run.loadState('tinker://none/weights/x', { optimizer: true }), BadRequest);
    await run.optimStep(adam);
  });

  it('the Tinker client samples, scores and downloads saved weights', async () => {
    const run = await client.createLoraModel(model);
    await Promise.all([run.forwardBackward(data, 'cross_entropy', {}), run.optimStep(adam)]);
    const path = await run.saveWeightsForSampler('sampler-1');
    const sampler = client.sampler(await client.createSamplingSession(path));
    const sequences = await sampler.sample({
      prompt: Int32Array.of(3, 4),
      numSamples: 3,
      maxTokens: 5,
      temperature: 1,
      seed: 1,
    });
    for (const { tokens, logprobs } of sequences) {
      assert(tokens.length > 0 && tokens.length === logprobs.length);
    }
    const tokens = Int32Array.of(3, 4, 5, 6, 7);
    const scored = await sampler.logprobs(tokens);
    const { logprobs } = await run.forward([imitation([...tokens])], 'cross_entropy', {});
    assert(Number.isNaN(scored[0]));
    logprobs[0]!.forEach((logprob, i) => {
      assert(Math.abs(logprob - scored[i + 1]!) < 1e-4);
    });

    const { adapter, rank, alpha } = await client.downloadAdapter(path);
    assert.equal(rank, 4);
    assert(decodeAdapter(adapter, { rank, alpha }).tensors.size > 0);

    await run.saveState('state-1');
    const kinds = (await client.listCheckpoints(run.modelId)).map(({ kind }) => kind);
    assert.deepEqual(kinds.sort(), ['sampler', 'training']);
    await client.deleteCheckpoint(path);
    await client.deleteCheckpoint(path);
    assert.equal((await client.listCheckpoints(run.modelId)).length, 1);
  });

  it('samples that share one poll are those that are polled one by one', async () => {
    const run = await client.createLoraModel(model);
    const path = await run.saveWeightsForSampler('shared-poll');
    const ask = async (lacking: Lacking) => {
      const polls = { retrieve_future: 0, retrieve_futures: 0 };
      const count = ({ operation }: Exchange) => {
        if (operation in polls) polls[operation as keyof typeof polls]++;
      };
      await using proxy = await RecordingProxy.before(backend.url, count, lacking);
      const where = { baseUrl: proxy.url, apiKey, log: silent, signal: never };
      await using other = await TinkerClient.connect(where);
      const sampler = other.sampler(await other.createSamplingSession(path));
      const groups = await Promise.all(
        Array.from({ length: 8 }, (_, seed) =>
          sampler.sample({
            prompt: Int32Array.of(3, 4, 5 + seed),
            numSamples: 16,
            maxTokens: 24,
            temperature: 1,
            seed,
          }),
        ),
      );
      return { groups, polls };
    };
    const together = await ask({});
    const apart = await ask({ calls: ['retrieve_futures'] });
    assert.deepEqual(together.groups, apart.groups);
    assert.equal(together.groups.flat().length, 8 * 16);
    assert.equal(together.polls.retrieve_future, 8, 'each result is fetched once');
    assert(together.polls.retrieve_futures > 0);
    assert.equal(apart.polls.retrieve_futures, 0);
  });

  it('the local backend gives the prompt logprobs that it lists as a capability, and has every optional call', async () => {
    const ofPrompt = async () => client.sampler(await openBase());
    const openBase = async () => {
      const wire = new Wire(backend.url);
      const session_id = await wire.createSession();
      const opened = await wire.post('create_sampling_session', {
        session_id,
        base_model: modelName,
      });
      return String(opened['sampling_session_id']);
    };
    const { signal } = new AbortController();
    assert.deepEqual(await probePromptLogprobs(ofPrompt, signal), { known: 'yes' });
    assert.deepEqual(await client.probePromptLogprobs(modelName), { known: 'yes' });
    const { has, lacks, unknown } = await client.probeCalls();
    assert.deepEqual([has, lacks, unknown], [Object.keys(optionalCalls), [], []]);
  });

  it('the Tinker client detects a backend restart and restores the run in a new session', async () => {
    const run = await client.createLoraModel(model);
    await Promise.all([run.forwardBackward(data, 'cross_entropy', {}), run.optimStep(adam)]);
    const statePath = await run.saveState('before-restart');
    const expected = await run.forward(data, 'cross_entropy', {});
    const weights = await run.saveWeightsForSampler('sampled-before-restart');
    const sampler = client.sampler(await client.createSamplingSession(weights));
    const port = Number(new URL(backend.url).port);
    await backend[Symbol.asyncDispose]();
    backend = await startOn(folder.path, { pollMs: 200, port });

    await assert.rejects(run.optimStep(adam), RunLost);
    const asked = {
      prompt: Int32Array.of(3),
      numSamples: 1,
      maxTokens: 2,
      temperature: 1,
      seed: 1,
    };
    await assert.rejects(sampler.sample(asked), RunLost);
    const restored = await client.restoreLoraModel({ ...model, statePath });
    assert.deepEqual(await restored.forward(data, 'cross_entropy', {}), expected);
  });
});
