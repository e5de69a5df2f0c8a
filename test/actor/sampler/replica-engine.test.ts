import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { describe, it } from 'node:test';
import { register } from 'prom-client';
import type { Engine } from '../../../actor/sampler/engine.js';
import { EngineSampler } from '../../../actor/sampler/engine-sampler.js';
import { isAbort } from '../../../shared/base/task-scope.js';
import { EngineDown } from '../../../shared/engine/engine-http.js';
import { roundToBfloat16, weightFormat, WeightsNotFinite } from '../../../shared/model/lora.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import { silent } from '../../support/log.js';
import { SglangTwin } from '../../support/sglang-twin.js';
import { VllmTwin } from '../../support/vllm-twin.js';
import { until } from '../../support/waiting.js';
import { unproven } from '../values.js';
import { adapterBytes, groupRequest, openEngine } from './engine-values.js';

const { signal } = new AbortController();
const sampling = '/inference/v1/generate';
const checks = { everyMs: 20, limitMs: 300 }; // of health
const started = 2; // calls that sample at the start: one of the base model, one with an adapter

/** The versions whose adapters a twin has. */
const versionsOf = (twin: VllmTwin | SglangTwin): number[] =>
  [...twin.loaded.keys()].map((name) => Number(/\.v(\d+)\./.exec(name)![1])).sort();

/** What the metrics say of a server. */
const metric = async (name: string, url: string): Promise<number | undefined> =>
  (await register.getSingleMetric(name)!.get()).values.find(
    ({ labels }) => labels['engine'] === url,
  )?.value;

/** What keeps a twin from answering, and lets it. */
function hold(): { readonly held: Promise<void>; readonly release: () => void } {
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  return { held, release };
}

const load = ({ engine, adapters }: Awaited<ReturnType<typeof openEngine>>, version: number) =>
  engine.load(adapters.manifest(version), unproven, signal);

/** Begins to load a version for a ticket that ends meanwhile. @returns what lets the engine go on with it. */
async function abandonLoad(
  twin: VllmTwin,
  engine: Engine,
  manifest: PolicyManifest,
): Promise<() => void> {
  const { held, release } = hold();
  twin.holds = { loads: held };
  const ticket = new AbortController();
  const loading = engine.load(manifest, unproven, ticket.signal);
  await until(() => twin.sent('/v1/load_lora_adapter').length > 1); // the first was of the check at the start
  ticket.abort(new Error('the ticket has ended'));
  await assert.rejects(loading, /the ticket has ended/);
  return release;
}

describe('adapters at an engine', () => {
  it('a dropped version is unloaded and its files are deleted', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters, adapterDir } = opened;
    for (const version of [1, 2]) await engine.load(adapters.manifest(version), unproven, signal);
    engine.unload(1);
    await until(() => twin.loaded.size === 1);
    assert.deepEqual(versionsOf(twin), [2]);
    const [own] = await readdir(adapterDir);
    await until(async () => (await readdir(join(adapterDir, own!))).length === 1);
  });

  it('a version gives its slot back even if its files cannot be deleted', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters, adapterDir } = opened;
    for (const version of [1, 2]) await engine.load(adapters.manifest(version), unproven, signal);
    const [own] = await readdir(adapterDir);
    await rm(join(adapterDir, own!), { recursive: true });
    await writeFile(join(adapterDir, own!), 'no folder any more');
    engine.unload(1);
    await until(async () => (await metric('rl_actor_engine_versions', twin.url)) === 1);
    assert.deepEqual(versionsOf(twin), [2]);
  });

  for (const kind of ['vllm', 'sglang'] as const) {
    it(`an adapter in bfloat16 reaches the engine as a file with such weights (${kind})`, async () => {
      await using twin = await (kind === 'vllm' ? VllmTwin : SglangTwin).start();
      await using opened = await openEngine([twin.url], { kind });
      const { engine, adapters, adapterDir } = opened;
      const bytes = await roundToBfloat16(adapterBytes(1));
      await engine.load(adapters.manifest(1, bytes), unproven, signal);
      assert.deepEqual(versionsOf(twin), [1]);
      const files = await readdir(adapterDir, { recursive: true });
      const path = files.find((file) => file.endsWith('adapter_model.safetensors'));
      const written = new Uint8Array(await readFile(join(adapterDir, path!)));
      assert.deepEqual([weightFormat(written), written], ['BF16', bytes]);
    });
  }

  it('a relative folder reaches the engine, which has another working folder, as an absolute path', async () => {
    const parent = await mkdtemp(join(tmpdir(), 'offbeat-relative-'));
    await using twin = await VllmTwin.start();
    {
      await using opened = await openEngine([twin.url], {
        adapterDir: relative(process.cwd(), parent),
      });
      await opened.engine.load(opened.adapters.manifest(1), unproven, signal);
      const [path] = [...twin.loaded.values()];
      assert.equal(path!.startsWith(`${parent}/`), true, path);
    }
    await rm(parent, { recursive: true });
  });

  it('the metrics have the slots of each server and the versions in them that it has proven', async () => {
    await using first = await VllmTwin.start();
    await using second = await VllmTwin.start();
    await using opened = await openEngine([first.url, second.url], { maxLoras: 6 });
    const { engine, adapters } = opened;
    const shown = () =>
      Promise.all(
        [first, second].map(async ({ url }) => [
          await metric('rl_actor_engine_versions', url),
          await metric('rl_actor_engine_slots', url),
        ]),
      );
    assert.deepEqual(await shown(), [
      [0, 6],
      [0, 6],
    ]);
    await engine.load(adapters.manifest(1), unproven, signal);
    second.refusesAdapter = () => 'no';
    await engine.load(adapters.manifest(2), unproven, signal);
    assert.deepEqual(await shown(), [
      [2, 6],
      [0, 6],
    ]);
  });

  it('a version that still samples stays until its calls have ended', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(1), unproven, signal);
    const { held, release } = hold();
    twin.holds = { sampling: held };
    using place = engine.place();
    const sampled = place.generate(1, groupRequest, 60_000, signal);
    await until(() => twin.sent(sampling).length === started + 1);
    engine.unload(1);
    await engine.load(adapters.manifest(2), unproven, signal);
    assert.deepEqual(versionsOf(twin), [1, 2]);
    release();
    assert.equal((await sampled).length, 3);
    await until(() => twin.loaded.size === 1);
  });

  it('more versions than slots wait for one to be dropped, so that none in use is evicted', async () => {
    await using twin = await VllmTwin.start({ slots: 6 });
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    for (const version of [1, 2, 3, 4, 5, 6]) await load(opened, version);
    let isLoaded = false;
    const seventh = engine
      .load(adapters.manifest(7), unproven, signal)
      .then(() => (isLoaded = true));
    for (let i = 0; i < 50; i++) await fetch(`${twin.url}/health`); // longer than a load takes
    assert.equal(isLoaded, false);
    assert.equal(twin.loaded.size, 6);
    engine.unload(1);
    await seventh;
    assert.deepEqual(versionsOf(twin), [2, 3, 4, 5, 6, 7]);
    assert.deepEqual(twin.evicted, []);
  });

  it('of two versions that wait for a slot, one takes the slot that a third gives back', async () => {
    await using twin = await VllmTwin.start({ slots: 6 });
    await using opened = await openEngine([twin.url]);
    const { engine } = opened;
    for (const version of [1, 2, 3, 4, 5, 6]) await load(opened, version);
    const waiting = [7, 8].map((version) => load(opened, version));
    for (let i = 0; i < 20; i++) await fetch(`${twin.url}/health`); // until both wait
    engine.unload(1);
    await Promise.race(waiting);
    for (let i = 0; i < 50; i++) await fetch(`${twin.url}/health`);
    assert.equal(twin.loaded.size, 6);
    engine.unload(2);
    await Promise.all(waiting);
    assert.deepEqual(versionsOf(twin), [3, 4, 5, 6, 7, 8]);
    assert.deepEqual(twin.evicted, []);
  });

  it('a version whose ticket ended while it was loaded leaves no adapter at the engine', async () => {
    await using twin = await VllmTwin.start({ slots: 6 });
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    const release = await abandonLoad(twin, engine, adapters.manifest(1));
    release();
    await until(() => twin.everLoaded.some((name) => name.startsWith('r.v1.')));
    await until(() => twin.loaded.size === 0);
  });

  it('a version that another ticket needs at that moment is loaded again', async () => {
    await using twin = await VllmTwin.start({ slots: 6 });
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    const release = await abandonLoad(twin, engine, adapters.manifest(1));
    const again = engine.load(adapters.manifest(1), unproven, signal);
    release();
    await again;
    using place = engine.place();
    assert.equal((await place.generate(1, groupRequest, 60_000, signal)).length, 3);
  });

  it('a version that is trained again after a crash gets another name', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(1), unproven, signal);
    await engine.load(adapters.manifest(1, adapterBytes(1, 9)), unproven, signal);
    await until(() => twin.loaded.size === 1);
    const names = twin.everLoaded.filter((name) => name.startsWith('r.v1.'));
    assert.equal(new Set(names).size, 2);
    assert.equal([...twin.loaded.keys()][0], names[1]);
  });

  it('a version that is published again with the same weights is not loaded again', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    for (let i = 0; i < 2; i++) await engine.load(adapters.manifest(1), unproven, signal);
    assert.equal(twin.everLoaded.filter((name) => name.startsWith('r.v1.')).length, 1);
  });

  it('weights that are not finite never reach the engine', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    const broken = adapters.manifest(1, adapterBytes(1, NaN));
    await assert.rejects(engine.load(broken, unproven, signal), WeightsNotFinite);
    assert.deepEqual(versionsOf(twin), []);
  });

  it('an actor that ends leaves neither adapters nor files', async () => {
    await using twin = await VllmTwin.start();
    const opened = await openEngine([twin.url]);
    await opened.engine.load(opened.adapters.manifest(1), unproven, signal);
    await opened[Symbol.asyncDispose]();
    assert.deepEqual(versionsOf(twin), []);
  });
});

describe('several engines', () => {
  it('a group goes to the engine with the fewest groups, and its continuations stay there', async () => {
    await using first = await VllmTwin.start();
    await using second = await VllmTwin.start();
    await using opened = await openEngine([first.url, second.url]);
    const { engine, adapters } = opened;
    const sampler = new EngineSampler(engine, {
      ...{ tokenizer: { decode: () => '' }, concurrency: 2, segmentTokens: 2, log: silent },
    });
    await sampler.load(adapters.manifest(1), unproven, signal);
    const before = [first, second].map((twin) => twin.sent(sampling).length);
    const policy = { version: 1, adoptsNewer: true };
    const request = { ...groupRequest, stopTokenIds: [] };
    const groups = [request, request].map((each) => sampler.sample(each, policy, signal));
    for (const rollouts of await Promise.all(groups)) {
      for (const { tokens } of rollouts) assert.equal(tokens.length, 5);
    }
    const calls = [first, second].map((twin, i) => twin.sent(sampling).length - before[i]!);
    assert.deepEqual(calls, [7, 7]); // one for all rollouts, then two for each of the three
  });

  it('an engine that is down takes no groups, and the others go on', async () => {
    await using first = await VllmTwin.start();
    await using second = await VllmTwin.start();
    await using opened = await openEngine([first.url, second.url]);
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(1), unproven, signal);
    await first.stop();
    using lost = engine.place();
    await assert.rejects(lost.generate(1, groupRequest, 60_000, signal), /ECONNREFUSED/);
    assert.equal(engine.trouble, undefined);
    using next = engine.place();
    assert.equal((await next.generate(1, groupRequest, 60_000, signal)).length, 3);
    await engine.load(adapters.manifest(2), unproven, signal);
    assert.deepEqual(versionsOf(second), [1, 2]);
  });

  it('an engine that comes back with flags that cannot serve the run stays out of use until it is started as before, and the others go on', async () => {
    await using first = await VllmTwin.start();
    await using second = await VllmTwin.start();
    const checks = { everyMs: 20, limitMs: 5_000, refusedMs: 50 };
    await using opened = await openEngine([first.url, second.url], { checks });
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(1), unproven, signal);
    const stop = new AbortController();
    const guarding = engine.guard(stop.signal).catch((error: unknown) => error);
    await until(() => engine.metrics.length === 2); // by which a restart is noticed
    const before = first.flags;
    await first.stop();
    first.flags = { ...before, loadsAtRuntime: false };
    await first.start();
    const reason = () => engine.servers[0]!.trouble ?? '';
    await until(() => reason().includes('VLLM_ALLOW_RUNTIME_LORA_UPDATING'));
    using place = engine.place();
    assert.equal((await place.generate(1, groupRequest, 60_000, signal)).length, 3);
    await engine.load(adapters.manifest(2), unproven, signal);
    await first.stop();
    first.flags = before;
    await first.start();
    await until(() => engine.servers.every(({ adapters: proven }) => proven === 2));
    stop.abort();
    const ending = await guarding;
    assert(ending === undefined || isAbort(ending, stop.signal), String(ending));
  });

  it('a version that one engine cannot load for good is loaded at the others', async () => {
    await using first = await VllmTwin.start();
    await using second = await VllmTwin.start();
    await using opened = await openEngine([first.url, second.url]);
    const { engine, adapters } = opened;
    first.flags = { ...first.flags, loadsAtRuntime: false };
    await engine.load(adapters.manifest(1), unproven, signal);
    assert.deepEqual([versionsOf(first), versionsOf(second)], [[], [1]]);
    second.flags = first.flags;
    await assert.rejects(engine.load(adapters.manifest(2), unproven, signal), {
      name: 'UserError',
    });
  });

  it('the password of an address reaches the server, and no error, lease or reason', async () => {
    await using twin = await VllmTwin.start();
    const url = twin.url.replace('//', '//me:hidden@2@');
    await using opened = await openEngine([url]);
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(1), unproven, signal);
    const basic = `Basic ${Buffer.from('me:hidden@2').toString('base64')}`;
    assert(twin.seen.every(({ authorization }) => authorization === basic));
    await twin.stop();
    using place = engine.place();
    const error: unknown = await place
      .generate(1, groupRequest, 60_000, signal)
      .catch((caught: unknown) => caught);
    const shown = JSON.stringify([String(error), engine.trouble, engine.servers]);
    assert.equal(shown.match(/\/\/…@127\.0\.0\.1/g)?.length, 4, shown);
    assert.doesNotMatch(shown, /hidden/);
  });
});

for (const Twin of [VllmTwin, SglangTwin]) {
  const kind = Twin === VllmTwin ? 'vllm' : 'sglang';
  describe(`a server that does not load a version (${kind})`, () => {
    it(`a server that does not load a version takes no groups until it does, and the others go on (${kind})`, async () => {
      await using first = await Twin.start();
      await using second = await Twin.start();
      const quick = { ...checks, refusedMs: 20 };
      await using opened = await openEngine([first.url, second.url], { kind, checks: quick });
      const { engine, adapters } = opened;
      await engine.load(adapters.manifest(1), unproven, signal);
      const words = 'Call to add_lora method failed: CUDA out of memory.';
      first.refusesAdapter = (name) => (name.startsWith('r.v2.') ? words : undefined);
      await engine.load(adapters.manifest(2), unproven, signal);
      const troubles = () => engine.servers.map(({ trouble }) => trouble ?? '');
      assert.match(troubles()[0]!, /CUDA out of memory/);
      assert.equal(troubles()[1], '');
      for (let i = 0; i < 20; i++) {
        using place = engine.place();
        assert.equal((await place.generate(2, groupRequest, 60_000, signal)).length, 3);
      }

      const stop = new AbortController();
      const guarding = engine.guard(stop.signal).catch(() => undefined);
      const asked = first.seen.length;
      await until(() => first.seen.length > asked + 20);
      assert.match(troubles()[0]!, /CUDA out of memory/);
      first.refusesAdapter = () => undefined;
      await until(() => troubles()[0] === '');
      assert.deepEqual(versionsOf(first), [1, 2]);
      stop.abort();
      await guarding;
    });

    it(`a server that does not load a version again after it has lost it is at fault, not the group (${kind})`, async () => {
      await using twin = await Twin.start();
      await using opened = await openEngine([twin.url], { kind });
      const { engine, adapters } = opened;
      await engine.load(adapters.manifest(1), unproven, signal);
      twin.loaded.clear();
      twin.refusesAdapter = () => 'Call to add_lora method failed: CUDA out of memory.';
      using place = engine.place();
      const lost = place.generate(1, groupRequest, 60_000, signal);
      await assert.rejects(lost, (error) => error instanceof EngineDown);
      assert.match(engine.trouble ?? '', /CUDA out of memory/);
    });
  });
}

for (const Twin of [VllmTwin, SglangTwin]) {
  const kind = Twin === VllmTwin ? 'vllm' : 'sglang';
  describe(`an engine that is restarted (${kind})`, () => {
    it(`an adapter that ${kind} has lost is loaded again, and the call repeated`, async () => {
      await using twin = await Twin.start();
      await using opened = await openEngine([twin.url], { kind });
      const { engine, adapters } = opened;
      await engine.load(adapters.manifest(1), unproven, signal);
      twin.loaded.clear();
      using place = engine.place();
      assert.equal((await place.generate(1, groupRequest, 60_000, signal)).length, 3);
      assert.deepEqual(versionsOf(twin), [1]);
    });

    it(`${kind} that comes back gets its adapters before it is used`, async () => {
      await using twin = await Twin.start();
      await using opened = await openEngine([twin.url], { kind, checks });
      const { engine, adapters } = opened;
      for (const version of [1, 2]) await engine.load(adapters.manifest(version), unproven, signal);
      await twin.stop();
      using place = engine.place();
      await assert.rejects(place.generate(1, groupRequest, 60_000, signal), /ECONNREFUSED/);
      assert.match(engine.trouble ?? '', /no engine answers/);
      assert.throws(() => engine.place(), /no engine answers/);

      await twin.start();
      const stop = new AbortController();
      const guarding = engine.guard(stop.signal).catch(() => undefined);
      await engine.ready(signal);
      assert.deepEqual(versionsOf(twin), [1, 2]);
      stop.abort();
      await guarding;
    });

    it(`a version that is dropped while ${kind} gets its adapters back is left out`, async () => {
      await using twin = await Twin.start();
      await using opened = await openEngine([twin.url], { kind, checks });
      const { engine, adapters, adapterDir } = opened;
      for (const version of [1, 2, 3]) {
        await engine.load(adapters.manifest(version), unproven, signal);
      }
      await twin.stop();
      using place = engine.place();
      await assert.rejects(place.generate(1, groupRequest, 60_000, signal), /ECONNREFUSED/);
      const { held, release } = hold();
      twin.holds = { loads: held };
      await twin.start();
      const before = twin.seen.length;
      const stop = new AbortController();
      const guarding = engine.guard(stop.signal).then(
        () => undefined,
        (error: unknown) => error,
      );
      const isLoading = () =>
        twin.seen.slice(before).some(({ path }) => path.endsWith('/load_lora_adapter'));
      await until(isLoading);
      engine.unload(2);
      const [own] = await readdir(adapterDir);
      await until(async () => (await readdir(join(adapterDir, own!))).length === 2);
      release();
      await Promise.race([engine.ready(signal), guarding]);
      assert.deepEqual(versionsOf(twin), [1, 3]);
      assert.equal(engine.servers[0]!.adapters, 2);
      stop.abort();
      const ending = await guarding;
      assert(ending === undefined || isAbort(ending, stop.signal), String(ending));
    });
  });
}

describe('an engine that hangs', () => {
  it('an engine that misses health checks ends its calls, and is used again without what was dropped meanwhile', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url], { checks });
    const { engine, adapters } = opened;
    for (const version of [1, 2]) await engine.load(adapters.manifest(version), unproven, signal);
    const [sampling, health] = [hold(), hold()];
    twin.holds = { sampling: sampling.held, health: health.held };
    using place = engine.place();
    const stop = new AbortController();
    const guarding = engine.guard(stop.signal).catch(() => undefined);
    await assert.rejects(place.generate(2, groupRequest, 600_000, signal), /health/);
    engine.unload(1);
    assert.deepEqual(versionsOf(twin), [1, 2]);
    sampling.release();
    health.release();
    await engine.ready(signal);
    assert.deepEqual(versionsOf(twin), [2]);
    stop.abort();
    await guarding;
  });
});

describe('a call that ends early', () => {
  it('an abandoned group closes its connection and is aborted by its id', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(1), unproven, signal);
    const { held, release } = hold();
    twin.holds = { sampling: held };
    const stop = new AbortController();
    using place = engine.place();
    const sampled = place.generate(1, groupRequest, 60_000, stop.signal);
    await until(() => twin.sent(sampling).length === started + 1);
    const reason = new Error('too old');
    stop.abort(reason);
    await assert.rejects(sampled, reason);
    await until(() => twin.sent('/inference/v1/abort_requests').length === 1);
    const [aborted] = twin.sent('/inference/v1/abort_requests') as { request_ids: string[] }[];
    const last = twin.sent(sampling).at(-1) as { request_id: string };
    assert.deepEqual(aborted!.request_ids, [`generate-tokens-${last.request_id}`]);
    assert.equal(twin.disconnected.length, 1);
    release();
  });

  it('at SGLang each of its sequences is aborted by the id that the server has given it', async () => {
    await using twin = await SglangTwin.start();
    await using opened = await openEngine([twin.url], { kind: 'sglang' });
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(1), unproven, signal);
    const { held, release } = hold();
    const stop = new AbortController();
    using place = engine.place();
    const before = twin.sent('/generate').length;
    twin.holdsDrawing = held;
    const sampled = place.generate(1, groupRequest, 60_000, stop.signal);
    await until(() => twin.drawing.size === groupRequest.count);
    stop.abort(new Error('too old'));
    await assert.rejects(sampled, /too old/);
    await until(() => twin.aborted.length === groupRequest.count);
    const { rid } = twin.sent('/generate')[before] as { rid: string };
    const ids = Array.from({ length: groupRequest.count }, (_, i) => `${rid}_${i}`);
    assert.deepEqual([...twin.aborted].sort(), ids.sort());
    release();
  });

  it('an engine that does not answer within the limit is out of use until it answers again, and told to abort', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(1), unproven, signal);
    const { held, release } = hold();
    twin.holds = { sampling: held };
    using place = engine.place();
    await assert.rejects(place.generate(1, groupRequest, 50, signal), /no answer within/);
    assert.match(engine.trouble ?? '', /no answer within/);
    await until(() => twin.sent('/inference/v1/abort_requests').length === 1);
    release();
  });
});
