import assert from 'node:assert/strict';
import { mkdtemp, readdir, copyFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { GroupRequest } from '../../shared/model/rollout-draft.js';
import { EngineSampler } from '../../actor/sampler/engine-sampler.js';
import { TinkerEngine } from '../../actor/sampler/tinker-engine.js';
import { startLocalBackend, type LocalBackend } from '../../local-backend/local-backend.js';
import { consume } from '../../shared/broker/consume.js';
import { openTask } from '../../shared/tasks/registry.js';
import { lengthAtStop } from '../../shared/model/stop-strings.js';
import { loadTokenizer, type Tokenizer } from '../../shared/model/tokenizer.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { CanaryCheck } from '../../actor/canary-check.js';
import { CanaryNotReproduced } from '../../actor/sampler/refusal.js';
import { CanarySource } from '../../learner/publish/canary-source.js';
import { IdleClock } from '../../learner/step/idle-clock.js';
import type { Canary } from '../../shared/wire/canary.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { manifest, unproven } from '../actor/values.js';
import { brokerOn } from '../support/broker.js';
import { silent } from '../support/log.js';
import { runConfig, ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { ServiceProcess } from '../support/service-process.js';
import { tinyModel } from '../support/tiny-model.js';
import { never, until } from '../support/waiting.js';

const apiKey = 'tml-test-key';
const samplingApiKey = 'tml-actors-key';
const modelName = 'tiny';

/** Texts whose tokens a canary may use. */
const texts = [
  Int32Array.of(3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14),
  Int32Array.of(14, 3, 3, 8, 9, 5, 4, 6, 10, 11, 7, 12),
];

const request: GroupRequest = {
  prompt: Int32Array.of(3, 4, 5),
  count: 3,
  temperature: 1,
  maxTokens: 7,
  stopTokenIds: [],
  seed: 1, // by which no answer ends early
};

/** Loads a version and lets groups sample with it. */
async function admitted(sampler: EngineSampler, version: PolicyManifest): Promise<void> {
  await sampler.load(version, unproven, never);
  sampler.admit(version.version);
}

describe('sampling by a Tinker backend', { timeout: 120_000 }, () => {
  const stop = new AbortController();
  let tokenizer: Tokenizer;
  let model: ModelDirectory & AsyncDisposable;
  let folder: string;
  let backend: LocalBackend;
  let learner: TinkerClient;
  let run: TrainingRun;
  const samplerPaths: string[] = [];
  const sessions: string[] = [];
  const canaries: Canary[] = []; // at temperature 0.8

  before(async () => {
    model = await tinyModel(1);
    tokenizer = await loadTokenizer(model);
    folder = await mkdtemp(join(tmpdir(), 'offbeat-actor-'));
    backend = await startLocalBackend({
      host: '127.0.0.1',
      port: 0,
      apiKey,
      samplingApiKey,
      modelDir: model.path,
      modelName,
      checkpointDir: join(folder, 'checkpoints'),
      threads: 1,
      log: silent,
    });
    const { signal } = stop;
    learner = await TinkerClient.connect({ baseUrl: backend.url, apiKey, log: silent, signal });
    run = await learner.createLoraModel({ baseModel: modelName, rank: 4, seed: 0 });
    for (const version of [0, 1]) await publish(version);
  });
  after(async () => {
    await learner[Symbol.asyncDispose]();
    stop.abort();
    await backend[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
    await model[Symbol.asyncDispose]();
  });

  /** Trains just enough to distinguish the versions, and opens the version's session. */
  async function publish(version: number): Promise<void> {
    const tokens = Int32Array.of(3, 4, 5, 6, 7);
    const data = [
      { tokens, targetTokens: tokens, inputs: { weights: new Float32Array(5).fill(1) } },
    ];
    await run.forwardBackward(data, 'cross_entropy', {});
    const adam = { learningRate: 0.05, beta1: 0.9, beta2: 0.95, eps: 1e-8 };
    await run.optimStep({ ...adam, weightDecay: 0, gradClipNorm: 0 });
    const path = await run.saveWeightsForSampler(`v${version}`);
    samplerPaths[version] = path;
    const source = new CanarySource({
      ...{ run, texts: [texts[0]!, texts[1]!], temperature: 0.8, arithmetic: 'fp32', log: silent },
      idle: new IdleClock(() => 0),
    });
    canaries[version] = (await source.request(version)())!;
    sessions[version] = await learner.createSamplingSession(path);
  }

  const published = (version: number) =>
    manifest(version, {
      samplerPath: samplerPaths[version]!,
      samplingSessionId: sessions[version]!,
    });

  const connect = async (
    named: { segmentTokens?: number; modelName?: string; fetch?: typeof fetch } = {},
  ) => {
    const where = { baseUrl: backend.url, apiKey: samplingApiKey, log: silent, signal: never };
    const engine = await TinkerEngine.connect({ ...where, modelName, ...named });
    const scheduling = { tokenizer, concurrency: 2, segmentTokens: 0, log: silent };
    return new EngineSampler(engine, { ...scheduling, ...named });
  };

  /** The logprob of each token of an answer under one version, as computed by the backend. */
  async function judged(version: number, tokens: Int32Array): Promise<Float32Array> {
    const whole = Int32Array.of(...request.prompt, ...tokens);
    const logprobs = await learner.sampler(sessions[version]!).logprobs(whole);
    return logprobs.slice(request.prompt.length);
  }

  it('the Tinker sampler samples a group by one version, reproducibly for the same seed', async () => {
    await using sampler = await connect();
    await admitted(sampler, published(0));
    await admitted(sampler, published(1));
    const policy = { version: 0, adoptsNewer: true };
    const rollouts = await sampler.sample(request, policy, never);
    assert.equal(rollouts.length, 3);
    for (const { tokens, versions, behaviorLogprobs, stopReason } of rollouts) {
      assert.deepEqual(versions, [[0, 7]]);
      assert.equal(stopReason, 'length');
      const expected = await judged(0, tokens);
      behaviorLogprobs.forEach((logprob, i) => {
        assert(Math.abs(logprob - expected[i]!) < 1e-4);
      });
    }
    assert.deepEqual(await sampler.sample(request, policy, never), rollouts);
  });

  it('the Tinker sampler continues an answer in segments on the newest version', async () => {
    await using sampler = await connect({ segmentTokens: 3 });
    await admitted(sampler, published(0));
    await admitted(sampler, published(1));
    const told: number[] = [];
    const policy = { version: 0, adoptsNewer: true };
    const rollouts = await sampler.sample(request, policy, never, {
      onDraw: (version) => told.push(version),
      ...{ noneDrawn: () => undefined, wasted: () => assert.fail('nothing was abandoned') },
    });
    assert.deepEqual([told[0], new Set(told)], [0, new Set([0, 1])]);
    for (const { tokens, versions, behaviorLogprobs } of rollouts) {
      assert.deepEqual(versions, [
        [0, 3],
        [1, 4],
      ]);
      const [byFirst, bySecond] = [await judged(0, tokens), await judged(1, tokens)];
      behaviorLogprobs.forEach((logprob, i) => {
        assert(Math.abs(logprob - (i < 3 ? byFirst : bySecond)[i]!) < 1e-4);
      });
    }
  });

  it('the Tinker sampler keeps a pinned version to the end, with and without segments', async () => {
    await using sampler = await connect({ segmentTokens: 3 });
    await admitted(sampler, published(0));
    await admitted(sampler, published(1));
    const rollouts = await sampler.sample(request, { version: 0, adoptsNewer: false }, never);
    for (const { versions } of rollouts) assert.deepEqual(versions, [[0, 7]]);
  });

  it('the Tinker sampler ends at a stop token, which belongs to the answer', async () => {
    await using sampler = await connect({ segmentTokens: 2 });
    await admitted(sampler, published(0));
    const stopTokenIds = Array.from({ length: 12 }, (_, id) => id);
    const stopping = { ...request, count: 16, stopTokenIds };
    const rollouts = await sampler.sample(stopping, { version: 0, adoptsNewer: true }, never);
    assert(rollouts.some(({ stopReason }) => stopReason === 'stop'));
    for (const { tokens, stopReason } of rollouts) {
      const firstStop = tokens.findIndex((token) => stopTokenIds.includes(token));
      assert.equal(firstStop, stopReason === 'stop' ? tokens.length - 1 : -1);
    }
  });

  it('the Tinker sampler reproduces the canary of the version that its session serves, and of no other', async () => {
    await using sampler = await connect();
    const check = new CanaryCheck(sampler, 'fp32');
    const load = (version: PolicyManifest) =>
      sampler.load(version, (...what) => check.require(version, ...what), never);
    for (const version of [0, 1]) {
      const honest = { ...published(version), canary: canaries[version]! };
      await load(honest);
      assert.deepEqual(check.certificate([version])?.canaries[0]?.[0], version);
    }
    const other = { ...published(0), version: 1, canary: canaries[1]! };
    await assert.rejects(load(other), CanaryNotReproduced);
    const hotter = { ...published(1), canary: { ...canaries[1]!, temperature: 0.9 } };
    await assert.rejects(load(hotter), CanaryNotReproduced);
  });

  it('a canary is drawn only at a backend that does not score prompts', async () => {
    for (const refuses of [false, true]) {
      const samples: number[] = [];
      /** The backend, or one that does not know the question. */
      const asked: typeof fetch = (url, init) => {
        const body = init?.body as string;
        if ((url as string).endsWith('/asample')) {
          if (refuses && body.includes('"prompt_logprobs":true')) {
            const detail = 'prompt_logprobs: Extra inputs are not permitted';
            return Promise.resolve(Response.json({ detail }, { status: 422 }));
          }
          samples.push((JSON.parse(body) as { num_samples: number }).num_samples);
        }
        return fetch(url, init);
      };
      await using sampler = await connect({ fetch: asked });
      const check = new CanaryCheck(sampler, 'fp32');
      const load = (from: number) => {
        const loaded = { ...published(from), version: 1, canary: canaries[1]! };
        return sampler.load(loaded, (...what) => check.require(loaded, ...what), never);
      };
      await load(1);
      assert(check.certificate([1]));
      assert.equal(samples.includes(64), refuses);
      const why = /by drawing them, since it does not show the logprobs of prompts/;
      await assert.rejects(load(0), refuses ? why : /(\d+) of \1 tokens were shown\. /);
    }
  });

  it('the Tinker sampler ends at a stop string that began in the previous segment', async () => {
    await using sampler = await connect();
    await using inSegments = await connect({ segmentTokens: 1 });
    const { decode } = tokenizer;
    const choice = { version: 0, adoptsNewer: true };
    for (const each of [sampler, inSegments]) {
      await admitted(each, published(0));
      const wholes = await each.sample({ ...request, count: 8 }, choice, never);
      const stopStrings = wholes
        .map(({ tokens }) => decode(tokens.subarray(1, 3)))
        .filter((text) => text.length === 2);
      assert(stopStrings.length > 0);
      const ended = await each.sample({ ...request, count: 8, stopStrings }, choice, never);
      for (const { tokens, behaviorLogprobs, versions, stopReason } of ended) {
        const length = lengthAtStop(tokens, decode, stopStrings);
        const isOver = tokenizer.eosTokenIds.includes(tokens.at(-1)!); // the backend's own stop
        assert.equal(stopReason, isOver || length !== undefined ? 'stop' : 'length');
        assert.equal(tokens.length, length ?? (isOver ? tokens.length : request.maxTokens));
        assert.equal(behaviorLogprobs.length, tokens.length);
        assert.deepEqual(versions, [[0, tokens.length]]);
      }
    }
  });

  it('the Tinker sampler reports a backend that serves another model, and a version without a session', async () => {
    await assert.rejects(connect({ modelName: 'other' }), /does not serve other.* but tiny/);
    await using sampler = await connect();
    const { samplingSessionId: _, ...unopened } = published(0);
    await assert.rejects(
      sampler.load(unopened, unproven, never),
      /no sampling session.*--sampler onnx/,
    );
  });

  it('an actor process that samples by the backend needs no model', async () => {
    await using server = await NatsServer.start();
    await using broker = await brokerOn(server, { run: 'test' });
    await broker.ensureRun({ trainTickets: 64, evalTickets: 64 });
    const config = runConfig({ model: { name: modelName, digest: model.digest } });
    const dataset = await openTask(config.task).load();
    await new RunConfigStore(broker).put({ ...config, datasetDigest: dataset.digest });
    for (const version of [0, 1]) {
      const { samplerPath, samplingSessionId } = published(version);
      const update = { version, samplerPath, smallestUsefulVersion: 0 };
      await broker.policy.publish({ ...update, samplingSessionId: samplingSessionId! });
    }
    const tokenizerOnly = await mkdtemp(join(folder, 'tokenizer-'));
    for (const file of await readdir(model.path)) {
      if (file.endsWith('.json')) await copyFile(join(model.path, file), join(tokenizerOnly, file));
    }
    const where = ['--nats-url', server.url, '--run', 'test', '--model-dir', tokenizerOnly];
    const sampling = [
      '--sampler',
      'tinker',
      '--backend-url',
      backend.url,
      '--api-key',
      samplingApiKey,
    ];
    await using actor = new ServiceProcess('actor', [...where, ...sampling, '--name', 'remote']);

    for (let order = 0; order < 5; order++) {
      const { id } = dataset.train[order]!;
      const pinned = order === 4 ? { split: 'eval' as const, pinnedVersion: 0 } : {};
      const issued = ticket({ ticketId: `t-${order}`, order, problemId: id, ...pinned });
      const subject = broker.names.subjects.tickets(issued.split);
      await broker.publish(subject, Ticket, issued, { msgId: issued.ticketId, signal: never });
    }
    const groups: RolloutGroup[] = [];
    const enough = new AbortController();
    const options = { signal: enough.signal, log: silent, stage: 'test', concurrency: 1 };
    await consume(broker, 'rollouts', RolloutGroup, options, ({ value }) => {
      groups.push(value);
      if (groups.length === 5) enough.abort();
      return Promise.resolve();
    });
    for (const { ticket: of, rollouts } of groups) {
      for (const { tokens, versions } of rollouts) {
        assert.deepEqual(versions, [[of.pinnedVersion ?? 1, tokens.length]]);
      }
    }
    await until(async () =>
      (await broker.actors.list()).some(({ sampler }) => sampler === 'tinker'),
    );
    assert.equal(await actor.stop('SIGTERM'), 0);
  });
});
