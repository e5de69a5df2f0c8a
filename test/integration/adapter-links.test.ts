import assert from 'node:assert/strict';
import { after, before, describe, it, mock } from 'node:test';
import { Certificates } from '../../learner/audit/certificates.js';
import type { Adapters } from '../../learner/settings/adapters.js';
import { AdapterSupply } from '../../learner/publish/adapter-supply.js';
import { IdleClock } from '../../learner/step/idle-clock.js';
import { Publisher } from '../../learner/publish/publisher.js';
import type { Broker } from '../../shared/broker/broker.js';
import { encodeAdapter } from '../../shared/model/lora.js';
import { parseModelConfig } from '../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../shared/model/model-writer.js';
import { AdapterLoader } from '../../shared/run/adapters/adapter-loader.js';
import { AllowedSources } from '../../shared/run/adapters/allowed-sources.js';
import { AdapterOutOfReach, BadRequest } from '../../shared/tinker/errors.js';
import type { ActorLease } from '../../shared/wire/actor-lease.js';
import { brokerOn } from '../support/broker.js';
import { FileServer, status } from '../support/file-server.js';
import { silent } from '../support/log.js';
import { actorLease } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { tinySizes, warmAdapter } from '../support/tiny-model.js';
import { never } from '../support/waiting.js';

const config = parseModelConfig(qwen3ConfigText(tinySizes), 'config.json');
const { safetensors } = encodeAdapter(warmAdapter(config, 2));
const minute = 60_000;

describe('versions that are published again, on a real server', { timeout: 120_000 }, () => {
  let nats: NatsServer;
  let broker: Broker;
  before(async () => {
    nats = await NatsServer.start();
  });
  after(() => nats[Symbol.asyncDispose]());

  /** A publisher whose backend gives links to a storage server that honours each for a quarter of an hour. */
  async function publishing(run: string, settings: Partial<Adapters>, storage?: FileServer) {
    broker = await brokerOn(nats, { run });
    await broker.ensureRun({ trainTickets: 1, evalTickets: 1 });
    mock.timers.enable({ apis: ['Date'], now: Date.UTC(2026, 0, 1) });
    const leases: ActorLease[] = [];
    const calls: string[] = [];
    let refusals: Error | undefined;
    const sign = () => {
      const expiresAt = Date.now() + 15 * minute;
      return { url: `${storage?.origin}/adapter?expires=${expiresAt}`, expiresAt };
    };
    const client = {
      locateAdapter: () =>
        storage === undefined ? Promise.resolve() : Promise.reject(new AdapterOutOfReach('no')),
      downloadAdapter: (path: string) => {
        calls.push(path);
        if (refusals !== undefined) return Promise.reject(refusals);
        return Promise.resolve({ adapter: safetensors, rank: 2, alpha: 4 });
      },
      downloadExternal: () =>
        Promise.resolve({ adapter: safetensors, rank: 2, alpha: 4, link: sign() }),
      signLink: (path: string) => {
        calls.push(`sign ${path}`);
        return refusals === undefined ? Promise.resolve(sign()) : Promise.reject(refusals);
      },
      createSamplingSession: (path: string) => Promise.resolve(`session of ${path}`),
      deleteCheckpoint: () => Promise.resolve(),
      sampler: () => ({
        sample: () => Promise.resolve([{ tokens: Int32Array.of(1), logprobs: [-1] }]),
      }),
    };
    const adapters = new AdapterSupply({
      client,
      run: {
        saveWeightsExternal: (name) => Promise.resolve(`tinker://run/external_weights/${name}`),
      },
      settings: {
        adapterStore: 'nats',
        adapterDtype: 'fp32',
        publishAdapters: 'asked',
        ...settings,
      },
      ...{ runName: run, idle: new IdleClock(() => 0), signal: never, log: silent },
      leases: () => Promise.resolve(leases),
    });
    const publisher = new Publisher({
      ...{ broker, client: client as never, adapters, backendSamples: storage === undefined },
      run: {
        saveWeightsForSampler: (name) => Promise.resolve(`tinker://run/sampler_weights/${name}`),
      },
      canaries: { request: () => () => Promise.resolve(undefined) },
      certificates: new Certificates(),
      versionAudit: { add: () => undefined },
      ...{ idle: new IdleClock(() => 0), maxStepsOffPolicy: 4, rewinds: [], log: silent },
      ...{ quarantined: () => [], confirmLead: () => Promise.resolve(), consumedBelow: () => 0 },
    });
    return {
      ...{ publisher, leases, calls },
      refuse: (error: Error) => (refusals = error),
      [Symbol.asyncDispose]: async () => {
        mock.timers.reset();
        await broker.deleteRun();
        await broker[Symbol.asyncDispose]();
      },
    };
  }

  const load = (storage: FileServer, manifest: Parameters<AdapterLoader['fetchAdapter']>[0]) =>
    new AdapterLoader({
      store: broker.policy,
      allowed: new AllowedSources(storage.origin, '--adapter-sources'),
    }).fetchAdapter(manifest, never);

  it('a link is renewed before it expires, for the newest version and older ones, so that an actor may start at any time', async () => {
    await using storage = await FileServer.start(safetensors);
    const { serve } = storage;
    storage.always = (request, response) => {
      const expires = new URL(request.url!, storage.origin).searchParams.get('expires');
      (Number(expires) > Date.now() ? serve : status(403))(request, response);
    };
    await using run = await publishing('links', { adapterStore: 'link' }, storage);
    const { publisher, calls } = run;
    await publisher.publish(0);
    await publisher.publish(1);
    const late = (await broker.policy.current())!;
    for (let minutes = 0; minutes < 60; minutes++) {
      mock.timers.tick(minute);
      await publisher.maintain();
      for (const manifest of [await broker.policy.current(), await broker.policy.at(0)]) {
        assert.deepEqual(await load(storage, manifest!), safetensors);
      }
    }
    assert.equal((await broker.policy.current())?.version, 1);
    assert(calls.length >= 10 && calls.length <= 14, `${calls.length} links`);
    await assert.rejects(load(storage, late), /answered 403; the link expired at 2026-01-01T00:15/);
  });

  it('a link that the backend refuses to renew is asked for once, and the run goes on', async () => {
    await using storage = await FileServer.start(safetensors);
    await using run = await publishing('refused', { adapterStore: 'link' }, storage);
    const { publisher, calls, refuse } = run;
    await publisher.publish(0);
    refuse(new BadRequest({ operation: 'sign', url: 'there', detail: 'gone' }));
    mock.timers.tick(14 * minute);
    await publisher.maintain();
    await publisher.maintain();
    assert.equal(calls.length, 1);
    await publisher.publish(1);
  });

  it('a version without an adapter gets it, with the older ones, once the lease of an actor with its own engine is there', async () => {
    await using run = await publishing('asking', {});
    const { publisher, leases, calls } = run;
    for (const version of [0, 1]) await publisher.publish(version);
    leases.push(actorLease({ sampler: 'tinker' }));
    await publisher.maintain();
    const weights = () => broker.link.jsm.streams.info('OBJ_weights_asking');
    assert.deepEqual([calls, (await weights()).state.last_seq], [[], 0]);
    const before = (await broker.policy.current())!;
    assert.equal(before.adapterOnRequest, true);

    leases.push(actorLease({ actor: 'own', sampler: 'vllm' }));
    await publisher.maintain();
    assert.equal(calls.length, 2);
    for (const version of [0, 1]) {
      const manifest = (await broker.policy.at(version))!;
      assert.equal(manifest.adapterOnRequest, undefined);
      assert.deepEqual(await broker.policy.fetchAdapter(manifest), safetensors);
    }
    const now = (await broker.policy.current())!;
    assert.deepEqual(now, await broker.policy.at(1));
    assert(now.publishedAt > before.publishedAt); // though the clock stands still here
    assert.equal(now.samplingSessionId, before.samplingSessionId);
    await publisher.maintain();
    await publisher.publish(2); // from now on at once
    assert.equal(calls.length, 3);
    assert.notEqual((await broker.policy.current())?.adapter, undefined);
  });

  it('an adapter that the backend refuses is asked for once, and the next version has its own', async () => {
    await using run = await publishing('gone', {});
    const { publisher, leases, calls, refuse } = run;
    await publisher.publish(0);
    leases.push(actorLease({ sampler: 'onnx' }));
    refuse(new BadRequest({ operation: 'archive', url: 'there', detail: 'no such checkpoint' }));
    await publisher.maintain();
    await publisher.maintain();
    assert.equal(calls.length, 1);
    assert.equal((await broker.policy.current())?.adapterOnRequest, true);
  });
});
