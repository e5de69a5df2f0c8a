import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { register } from 'prom-client';
import { CanaryCheck } from '../../../actor/canary-check.js';
import { CanaryNotReproduced } from '../../../actor/sampler/refusal.js';
import { AdapterFolder } from '../../../actor/sampler/adapter-folder.js';
import type { Engine } from '../../../actor/sampler/engine.js';
import { EngineSampler } from '../../../actor/sampler/engine-sampler.js';
import { EngineWatch } from '../../../actor/sampler/engine-watch.js';
import { Replica } from '../../../actor/sampler/replica.js';
import { TaskScope } from '../../../shared/base/task-scope.js';
import { serverOf } from '../../../shared/engine/dialects.js';
import { EngineDown } from '../../../shared/engine/engine-http.js';
import { readEngineMetrics, vllmMetrics } from '../../../shared/engine/engine-metrics.js';
import type { Canary } from '../../../shared/wire/canary.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import { twinFlags } from '../../support/engine-twin.js';
import { FileServer } from '../../support/file-server.js';
import { recordingLog, silent } from '../../support/log.js';
import { SglangTwin } from '../../support/sglang-twin.js';
import { VllmTwin } from '../../support/vllm-twin.js';
import { gate, until } from '../../support/waiting.js';
import { adapterBytes, groupRequest, openEngine, rank } from './engine-values.js';

type Twin = VllmTwin | SglangTwin;

const { signal } = new AbortController();
const prompt = Int32Array.of(1, 2);
const sampling = { vllm: '/inference/v1/generate', sglang: '/generate' } as const;
const checks = { everyMs: 2_000, limitMs: 5_000, refusedMs: 30_000 };

function samplerOn(engine: Engine): EngineSampler {
  const options = { tokenizer: { decode: () => '' }, concurrency: 4, segmentTokens: 0 };
  return new EngineSampler(engine, { ...options, log: silent });
}

/** One server as an actor uses it, whose clock only the test moves. */
async function openReplica(
  twin: Twin,
  { capacity = 6, maxContext }: { capacity?: number | undefined; maxContext?: number } = {},
) {
  const kind = twin instanceof VllmTwin ? 'vllm' : 'sglang';
  const parent = await mkdtemp(join(tmpdir(), 'offbeat-replica-'));
  const folder = await AdapterFolder.create(parent, 'r', 'a');
  const proofs: string[] = []; // of which version, where
  const outages: string[] = [];
  const closing = new AbortController();
  let clock = 0;
  const adapter = async (version: number) => {
    const name = `r.v${version}.0123456789ab.a.123456`;
    const files = { safetensors: adapterBytes(version), rank, alpha: 8 };
    return {
      ...{ name, rank, folder: await folder.write(name, files) },
      prove: async (
        draw: Parameters<Parameters<Replica['bring']>[0]['prove']>[0],
        ending: AbortSignal,
        where?: string,
      ) => {
        proofs.push(`${version} at ${String(where)}`);
        await draw({ ...groupRequest, count: 1, maxTokens: 1 }, 300_000, ending);
      },
    };
  };
  const wanted = [await adapter(1), await adapter(2)];
  const server = serverOf(kind, twin.url, undefined);
  const limits: number[] = []; // in ms, of the calls that sample
  const generate = server.generate.bind(server);
  server.generate = (call, ending) => {
    limits.push(call.limitMs);
    return generate(call, ending);
  };
  const replica = new Replica({
    ...{ server, release: '0.0.1', capacity, slots: 6 },
    maxContext,
    ...{ need: { temperature: 1, prompt }, checks, stallSeconds: undefined, log: silent },
    wanted: () => wanted,
    isOwn: (name) => name.endsWith('.a.123456'),
    closing: closing.signal,
    now: () => clock,
    onChange: (outage) => outages.push(outage ?? 'back'),
    onRefusal: () => undefined,
  });
  for (const each of wanted) await replica.bring(each, signal);
  const sent = twin.sent(sampling[kind]).length;
  return {
    ...{ replica, wanted, proofs, outages, limits },
    /** Calls that sample since it was opened. */
    calls: () => twin.sent(sampling[kind]).length - sent,
    generate: (version = 2) =>
      replica.generate(wanted[version - 1]!, groupRequest, 600_000, signal),
    /** Lets the time between two checks pass, and checks. */
    check: async () => {
      clock += checks.everyMs;
      await replica.check(signal);
    },
    pass: (ms: number) => (clock += ms),
    [Symbol.asyncDispose]: async () => {
      closing.abort();
      await rm(parent, { recursive: true, force: true });
    },
  };
}

const both = ['1 at', '2 at'];

/** The versions of the proofs since a moment. */
const since = (proofs: readonly string[], count: number) =>
  proofs.slice(count).map((proof) => proof.slice(0, 4));

for (const Twin of [VllmTwin, SglangTwin]) {
  const kind = Twin === VllmTwin ? 'vllm' : 'sglang';

  describe(`a server that may have lost what it has proven (${kind})`, () => {
    it(`${kind} that has lost an adapter proves it again before the call is repeated`, async () => {
      await using twin = await Twin.start();
      await using opened = await openReplica(twin);
      const { generate, proofs, calls } = opened;
      twin.loaded.clear();
      const before = proofs.length;
      assert.equal((await generate()).length, 3);
      assert.deepEqual(since(proofs, before), ['2 at']);
      assert.equal(calls(), 3, 'the call that failed, the proof, the call');
    });

    it(`${kind} that was restarted proves every version before it is used`, async () => {
      await using twin = await Twin.start();
      await using opened = await openReplica(twin);
      const { replica, generate, check, proofs, outages } = opened;
      await twin.stop();
      await assert.rejects(generate(), /ECONNREFUSED/);
      assert.equal(replica.isUp, false);
      await assert.rejects(generate(), /out of use/);
      await check();
      assert.equal(replica.isUp, false);
      await twin.start();
      const before = proofs.length;
      await check();
      assert.equal(replica.isUp, true);
      assert.deepEqual(since(proofs, before), both);
      assert.deepEqual(outages, ['down', 'back']);
      assert.equal((await generate()).length, 3);
    });

    it(`${kind} that was replaced between two checks by a server with the same adapters proves them, and its calls end`, async () => {
      await using twin = await Twin.start();
      await using opened = await openReplica(twin);
      const { replica, generate, check, proofs, outages } = opened;
      await generate();
      await check();
      const adapters = [...twin.loaded];
      await twin.stop();
      await twin.start();
      for (const [name, folder] of adapters) twin.loaded.set(name, folder);
      const { opened: held, open } = gate();
      twin.holds = { sampling: held };
      const call = assert.rejects(generate(), /was restarted, or another server/);
      await until(() => twin.counters.running === 1);
      const before = proofs.length;
      const checking = check();
      await call;
      open();
      await checking;
      assert.deepEqual(outages, ['restarted', 'back']);
      assert.deepEqual(since(proofs, before), both);
      assert.equal(replica.isUp, true);
    });

    it(`${kind} that hangs returns its calls within seconds of its last token, and is used again once it draws`, async () => {
      await using twin = await Twin.start();
      await using opened = await openReplica(twin);
      const { replica, generate, check, proofs, outages } = opened;
      /** Hangs until the actor notices, and a little longer. @returns the silence until then. */
      const hang = async (): Promise<number> => {
        const { opened: held, open } = gate();
        twin.holds = { sampling: held };
        let error: unknown;
        const call = generate().catch((caught: unknown) => (error = caught));
        await until(() => twin.counters.running === 1);
        await check();
        twin.counters.generated += 5; // another one's tokens are progress, too
        await check();
        let silentMs = 0;
        const readmission = [];
        while (error === undefined && silentMs < 120_000) {
          silentMs += checks.everyMs;
          const checking = check();
          await Promise.race([checking, call]);
          if (!replica.isUp) readmission.push(checking);
          await new Promise(setImmediate);
        }
        assert(error instanceof EngineDown);
        assert.match(error.message, /draws no tokens: none for \d+ s/);
        assert.equal(replica.isUp, false);
        const before = proofs.length;
        open();
        await Promise.all(readmission);
        assert.deepEqual(since(proofs, before), both);
        assert.equal((await generate()).length, 3);
        return silentMs;
      };
      const first = await hang();
      assert(first <= 14_000, `after ${first} ms`);
      const second = await hang();
      assert(second >= 1.9 * first, `it was only slow, and yet given up after ${second} ms`);
      assert.deepEqual(outages, ['hung', 'back', 'hung', 'back']);
    });
  });
}

describe('a server without metrics', () => {
  it('a server that shows no metrics is never taken for a hung one', async () => {
    await using twin = await VllmTwin.start({ showsMetrics: false });
    await stayUp(twin);
  });
});

describe('a vLLM that shows a series for each set of adapters that it ever ran', () => {
  const series = (version: number) => {
    const names = `countdown.v${version}.0123456789ab.gpu-node-17.a1b2c3,`.repeat(6);
    return `vllm:lora_requests_info{max_lora="6",running_lora_adapters="${names}"} 1.7e+09\n`;
  };
  const grown = Array.from({ length: 6_000 }, (_, i) => series(i)).join('');

  it('stays in use while it draws, with metrics of two megabytes', async () => {
    await using twin = await VllmTwin.start();
    assert(grown.length > 2_000_000);
    let checks = 0;
    const onCheck = () => {
      twin.counters.generated += 5;
      if (++checks > 3) twin.moreMetrics = grown; // its pace is known by then
    };
    await stayUp(twin, onCheck, 15);
  });

  it('is used again after it was away, though only its metrics tell its slots', async () => {
    await using twin = await VllmTwin.start({ tellsSlots: false });
    await using opened = await openReplica(twin);
    const { replica, generate, check, outages } = opened;
    twin.moreMetrics = grown;
    await twin.stop();
    await assert.rejects(generate(), /ECONNREFUSED/);
    await twin.start();
    await check();
    assert.deepEqual(outages, ['down', 'back']);
    assert.equal(replica.metrics?.running, 0);
  });
});

describe('a server that comes back', () => {
  it('is not used with less room for tokens than the actor asks for, and is with as much', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openReplica(twin, { maxContext: 64 });
    const { replica, generate, check, outages } = opened;
    await twin.stop();
    await assert.rejects(generate(), /ECONNREFUSED/);
    twin.flags = { ...twinFlags, maxContext: 32 };
    await twin.start();
    await assert.rejects(check(), {
      name: 'UserError',
      message: /room for 32 tokens in a sequence, and this actor asks for up to 64/,
    });
    assert.equal(replica.isUp, false);
    await twin.stop();
    twin.flags = twinFlags;
    await twin.start();
    await check();
    assert.deepEqual(outages, ['down', 'back']);
  });

  it('ends what a proof has left over, which would say later that the server is down', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openReplica(twin);
    const { wanted, generate, check } = opened;
    await twin.stop();
    await assert.rejects(generate(), /ECONNREFUSED/);
    await twin.start();
    let left: AbortSignal | undefined;
    wanted[0]!.prove = (_draw, ending) => {
      left = ending;
      return Promise.resolve();
    };
    await check();
    assert.equal(left?.aborted, true);
  });

  it('is not used if it has several engines now', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openReplica(twin);
    const { replica, generate, check } = opened;
    await twin.stop();
    await assert.rejects(generate(), /ECONNREFUSED/);
    twin.moreMetrics = 'vllm:num_requests_running{engine="1",model_name="base"} 0.0\n';
    await twin.start();
    await assert.rejects(check(), /2 engines behind one address/);
    assert.equal(replica.isUp, false);
  });
});

describe('a proof that waits in the queue of a server', () => {
  it('a proof has two minutes, or as long as any call if the server shows that it draws tokens', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openReplica(twin);
    const { replica, wanted, check, limits } = opened;
    assert.deepEqual(limits, [120_000, 120_000]);
    await check();
    replica.unprove(wanted[0]!.name);
    await replica.bring(wanted[0]!, signal);
    assert.deepEqual(limits, [120_000, 120_000, 300_000]);
  });
});

describe('metrics that a server no longer shows', () => {
  const counts = readEngineMetrics('vllm:generation_tokens_total 9', vllmMetrics);

  it('metrics that are late are silence, but not those that a server does not show', () => {
    const found = ([undefined, 'late'] as const).map((shown) => {
      const watch = new EngineWatch(60);
      watch.look(counts, true, 2);
      return Array.from({ length: 40 }, () => watch.look(shown, true, 2)?.outage).find(Boolean);
    });
    assert.deepEqual(found, [undefined, 'hung']);
  });

  it('metrics larger than can be read count as none', async () => {
    await using server = await FileServer.start(Buffer.alloc(1 << 20, '#'));
    server.always = (_request, response) => {
      response.on('drain', () => response.write(server.file));
      response.write(server.file); // without an end
    };
    const metrics = serverOf('vllm', server.origin, undefined).metrics(60_000, signal);
    assert.equal(await metrics, undefined);
  });
});

describe('SGLang, whose usual totals count a request only when it ends', () => {
  it('a server that draws one long answer for minutes stays in use', async () => {
    await using twin = await SglangTwin.start();
    await stayUp(twin, () => (twin.counters.generated += 5));
  });

  it('a release that does not count in real time is never taken for a hung one', async () => {
    await using twin = await SglangTwin.start({ countsLive: false });
    await stayUp(twin);
  });
});

/** Requires that a server stays in use while no answer ends, for 400 s or other checks of 2 s. */
async function stayUp(twin: Twin, onCheck = (): unknown => undefined, times = 200): Promise<void> {
  await using opened = await openReplica(twin);
  const { generate, check, outages } = opened;
  const { opened: held, open } = gate();
  twin.holds = { sampling: held };
  const call = generate().catch((error: unknown) => error);
  await until(() => twin.counters.running === 1);
  for (let i = 0; i < times && outages.length === 0; i++) {
    onCheck();
    await Promise.race([check(), call]);
  }
  open();
  await call;
  assert.deepEqual(outages, []);
}

describe('a server that has more adapters than slots', () => {
  it('what was drawn while another client loaded one too many does not count, and all versions are proven again', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openReplica(twin, { capacity: 2 });
    const { replica, wanted, generate, check, proofs, outages } = opened;
    assert.equal((await generate()).length, 3);
    const { opened: held, open } = gate();
    twin.holds = { sampling: held };
    const call = assert.rejects(
      generate(),
      /3 adapters and slots for 2.*unload those of others \(stranger\)/,
    );
    await until(() => twin.counters.running === 1);
    twin.loaded.set('stranger', wanted[0]!.folder);
    open();
    await call;
    assert.equal(replica.isUp, false);
    const before = proofs.length;
    twin.loaded.set('second stranger', wanted[0]!.folder);
    await check();
    assert.deepEqual(since(proofs, before), both);
    assert.deepEqual(outages, ['evicted', 'back']);
    // What is there now was there during the proof, so nothing has been evicted since.
    assert.equal((await generate()).length, 3);
    twin.loaded.set('another', wanted[0]!.folder);
    await assert.rejects(generate(), /5 adapters/);
  });
});

/** What a trainer of version 1 says, if a twin serves that version rightly. */
function canaryOf(twin: Twin, version: number): Canary {
  const texts = [Int32Array.of(1, 2, 3, 0), Int32Array.of(4, 1)];
  const places: [number, number][] = [
    ...([
      [0, 1],
      [0, 2],
      [0, 3],
    ] as [number, number][]),
    [1, 1],
  ];
  const all = twin.logprobs({ adapter: `r.v${version}.x`, temperature: 1 });
  const logprobs = Float32Array.from(places, ([text, at]) => all[texts[text]![at]!]!);
  return { temperature: 1, arithmetic: 'fp32', texts, places, logprobs };
}

describe('several servers that must reproduce a canary', () => {
  it('each server proves each version by itself, one that confuses adapters samples nothing until it reproduces them, and the other goes on', async () => {
    await using first = await VllmTwin.start();
    await using second = await VllmTwin.start();
    const quick = { everyMs: 10, limitMs: 5_000, refusedMs: 10 };
    await using opened = await openEngine([first.url, second.url], { checks: quick });
    const { engine, adapters } = opened;
    await using sampler = samplerOn(engine);
    const canaries = new CanaryCheck(sampler, 'fp32');
    const load = (manifest: PolicyManifest) =>
      sampler.load(manifest, (...what) => canaries.require(manifest, ...what), signal);
    const published = (version: number) => ({
      ...adapters.manifest(version),
      canary: canaryOf(first, version),
    });
    const drawn = (twin: Twin) => twin.sent(sampling.vllm).length;
    const before = [drawn(first), drawn(second)];
    await load(published(1));
    assert.deepEqual([drawn(first) - before[0]!, drawn(second) - before[1]!], [4, 4]);

    second.confuses = () => 'r.v1.x';
    await load(published(2));
    const [, lease] = engine.servers;
    assert.match(lease!.trouble!, /does not reproduce its canary/);
    assert.equal(lease!.adapters, 0);
    const asked = drawn(second);
    const policy = { version: 2, adoptsNewer: false };
    const groups = [1, 2, 3, 4].map(() => sampler.sample(groupRequest, policy, signal));
    assert.equal((await Promise.all(groups)).length, 4);
    assert.equal(drawn(second), asked);

    second.confuses = (adapter) => adapter;
    const stop = new AbortController();
    const guarding = sampler.guard(stop.signal).catch(() => undefined);
    await until(() => engine.servers[1]!.trouble === undefined);
    stop.abort();
    await guarding;
    const again = drawn(second);
    await Promise.all([1, 2].map(() => sampler.sample(groupRequest, policy, signal)));
    assert.equal(drawn(second), again + 1);
  });

  it('each further attempt of a server that does not reproduce a canary is logged, counted and in the lease', async () => {
    await using first = await VllmTwin.start();
    await using second = await VllmTwin.start();
    const quick = { everyMs: 10, limitMs: 5_000, refusedMs: 10 };
    const { log, lines } = recordingLog();
    await using opened = await openEngine([first.url, second.url], { checks: quick, log });
    const { engine, adapters } = opened;
    await using sampler = samplerOn(engine);
    const canaries = new CanaryCheck(sampler, 'fp32');
    const count = async () =>
      (await register.getSingleMetric('rl_actor_engine_refusals_total')!.get()).values.find(
        ({ labels }) => labels['engine'] === second.url && labels['outage'] === 'canary',
      )?.value ?? 0;
    second.confuses = () => 'r.v7.x';
    const manifest = { ...adapters.manifest(1), canary: canaryOf(first, 1) };
    await sampler.load(manifest, (...what) => canaries.require(manifest, ...what), signal);
    const refused = () => engine.servers[1]!.refused;
    assert.deepEqual([refused()?.version, refused()?.attempts, await count()], [1, 1, 1]);
    assert(refused()!.difference > refused()!.band);

    {
      await using guarding = new TaskScope(signal); // ends too if a wait fails
      guarding.start((ending) => sampler.guard(ending));
      await until(() => (refused()?.attempts ?? 0) >= 3);
      second.confuses = (adapter) => adapter;
      await until(() => engine.servers[1]!.trouble === undefined);
    }
    assert.equal(refused(), undefined);
    assert.deepEqual(
      [engine.servers[0]!.refused, engine.servers[0]!.trouble],
      [undefined, undefined],
    );
    const attempts = await count();
    assert(attempts >= 3);
    const again = lines.filter(({ msg }) => msg === 'engine stays out of use');
    assert.equal(again.length, attempts - 1);
    for (const { url, reason } of again) {
      assert.equal(url, second.url);
      assert.match(String(reason), /does not reproduce its canary: token \d+ .* a difference of/);
    }
  });

  it('a version that no server reproduces is refused as a whole, and the servers stay in use for the others', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    await using sampler = samplerOn(engine);
    const canaries = new CanaryCheck(sampler, 'fp32');
    const manifest = { ...adapters.manifest(2), canary: canaryOf(twin, 1) };
    await assert.rejects(
      sampler.load(manifest, (...what) => canaries.require(manifest, ...what), signal),
      (error: unknown) =>
        error instanceof CanaryNotReproduced && error.message.startsWith(twin.url),
    );
    assert.equal(sampler.trouble, undefined);
    await until(() => twin.loaded.size === 0);
  });

  it('a version that is loaded during an outage fails at once, and does not keep the server out afterwards', async () => {
    await using twin = await VllmTwin.start();
    const quick = { everyMs: 20, limitMs: 500, refusedMs: 60_000 };
    await using opened = await openEngine([twin.url], { checks: quick });
    const { engine, adapters } = opened;
    await using sampler = samplerOn(engine);
    const canaries = new CanaryCheck(sampler, 'fp32');
    const load = (manifest: PolicyManifest) =>
      sampler.load(manifest, (...what) => canaries.require(manifest, ...what), signal);
    await load({ ...adapters.manifest(1), canary: canaryOf(twin, 1) });
    await using guarding = new TaskScope(signal);
    guarding.start((ending) => sampler.guard(ending));
    await twin.stop();
    await until(() => sampler.trouble !== undefined);
    const wrong = { ...adapters.manifest(2), canary: canaryOf(twin, 1) };
    await assert.rejects(load(wrong), EngineDown);
    await twin.start();
    await sampler.ready(signal);
    await assert.rejects(load(wrong), CanaryNotReproduced);
    await load({ ...adapters.manifest(3), canary: canaryOf(twin, 3) });
  });

  it('a restarted server with other weights samples nothing, and the group goes back', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    await using sampler = samplerOn(engine);
    const canaries = new CanaryCheck(sampler, 'fp32');
    const manifest = { ...adapters.manifest(1), canary: canaryOf(twin, 1) };
    await sampler.load(manifest, (...what) => canaries.require(manifest, ...what), signal);
    twin.loaded.clear();
    twin.confuses = () => 'r.v7.x';
    const policy = { version: 1, adoptsNewer: false };
    const lost = sampler.sample(groupRequest, policy, signal);
    await assert.rejects(
      lost,
      (error) => error instanceof EngineDown && /canary/.test(error.message),
    );
    assert.match(sampler.trouble!, /does not reproduce its canary/);
  });
});
