import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { UserError } from '../../../shared/base/errors.js';
import { asyncComplaintOf } from '../../support/complaint.js';
import { twinFlags, type TwinFlags } from '../../support/engine-twin.js';
import { recordingLog } from '../../support/log.js';
import { SglangTwin } from '../../support/sglang-twin.js';
import { VllmTwin } from '../../support/vllm-twin.js';
import { until } from '../../support/waiting.js';
import { openEngine } from './engine-values.js';

/** The words with which an actor refuses a server that was started with these flags. */
async function refusal(
  kind: 'vllm' | 'sglang',
  flags: Partial<TwinFlags>,
  options: Parameters<typeof openEngine>[1] = {},
): Promise<string> {
  await using twin = await (kind === 'vllm' ? VllmTwin : SglangTwin).start(flags);
  const words = await asyncComplaintOf(async () => {
    await using _opened = await openEngine([twin.url], { kind, ...options });
  });
  assert.deepEqual([...twin.loaded.keys()], [], 'adapters of the check stay loaded');
  return words;
}

/** Fails with its first adapter, as a server out of memory does. */
class FailingTwin extends VllmTwin {
  protected override answer(method: string, path: string, body: unknown) {
    const { model, lora_name: name } = (body ?? {}) as { model?: string; lora_name?: string };
    if (this.samples(path) && model !== 'base') {
      return { status: 500, json: { error: { message: 'EngineCore died: out of memory' } } };
    }
    if (path === '/v1/unload_lora_adapter' && name?.startsWith('r.') === true) {
      return { status: 503, json: { error: { message: 'not now' } } };
    }
    return super.answer(method, path, body);
  }
}

describe('what is checked of an engine at the start', () => {
  const flags: readonly [string, 'vllm' | 'sglang', Partial<TwinFlags>, RegExp][] = [
    ['vLLM without token ids', 'vllm', { samplesByIds: false }, /--enable-scale-out/],
    [
      'vLLM that loads no adapters at run time',
      'vllm',
      { loadsAtRuntime: false },
      /VLLM_ALLOW_RUNTIME_LORA_UPDATING=1/,
    ],
    ['vLLM without adapters', 'vllm', { takesAdapters: false }, /--enable-lora/],
    ['SGLang without adapters', 'sglang', { takesAdapters: false }, /--enable-lora/],
    ['vLLM for a smaller rank', 'vllm', { maxRank: 2 }, /--max-lora-rank 4/],
    ['SGLang for a smaller rank', 'sglang', { maxRank: 2 }, /--max-lora-rank 4/],
    ['vLLM with too few slots', 'vllm', { slots: 5 }, /has 6 versions in use.*--max-loras 6/],
    ['SGLang with too few slots', 'sglang', { slots: 5 }, /--max-loras-per-batch 6/],
    ['an engine that does not say its slots', 'vllm', { tellsSlots: false }, /--engine-max-loras/],
  ];
  for (const [what, kind, started, words] of flags) {
    it(`${what} is refused, with the flag to add`, async () => {
      assert.match(await refusal(kind, started), words);
    });
  }

  it('every missing flag is named at once', async () => {
    const words = await refusal('vllm', { samplesByIds: false, loadsAtRuntime: false });
    assert.match(words, /--enable-scale-out/);
    assert.match(words, /VLLM_ALLOW_RUNTIME_LORA_UPDATING=1/);
  });

  it('logprobs of temperature 1 are refused for a run at another temperature, and accepted at 1', async () => {
    const raw = { appliesTemperature: false };
    assert.match(await refusal('vllm', raw, { temperature: 0.7 }), /--logprobs-mode processed/);
    assert.match(await refusal('sglang', raw, { temperature: 2 }), /RETURN_ORIGINAL_LOGPROB/);
    await using twin = await VllmTwin.start(raw);
    await (await openEngine([twin.url]))[Symbol.asyncDispose]();
    await using processing = await VllmTwin.start();
    await (await openEngine([processing.url], { temperature: 0.7 }))[Symbol.asyncDispose]();
  });

  it('slots that the engine does not tell are those of --engine-max-loras, which may not exceed the told ones', async () => {
    await using telling = await VllmTwin.start({ slots: 7 });
    await using silentTwin = await VllmTwin.start({ tellsSlots: false });
    const { log, lines } = recordingLog();
    const urls = [telling.url, silentTwin.url];
    await using opened = await openEngine(urls, { maxLoras: 7, log });
    assert.equal(opened.engine.maxVersions, 7);
    const warned = lines.filter(({ msg }) => msg.startsWith('engine does not report its slots'));
    assert.deepEqual(
      warned.map(({ url }) => url),
      [silentTwin.url],
    );
    assert.match(await refusal('vllm', {}, { maxLoras: 7 }), /room for 6/);
    assert.match(await refusal('vllm', {}, { maxLoras: 5 }), /--engine-max-loras is 5/);
  });

  it('an engine that cannot be told to end calls is used, with a warning', async () => {
    await using twin = await VllmTwin.start({ abortsCalls: false });
    const { log, lines } = recordingLog();
    await using _opened = await openEngine([twin.url], { log });
    const warned = lines.filter(({ msg }) => msg.startsWith('engine goes on with calls'));
    assert.deepEqual(
      warned.map(({ remedy }) => remedy),
      ['use vLLM 0.32 or newer'],
    );
  });

  it('the key of the engine is sent, and without it the actor says how to give it', async () => {
    await using twin = await VllmTwin.start({ apiKey: 'engine-key' });
    await (await openEngine([twin.url], { apiKey: 'engine-key' }))[Symbol.asyncDispose]();
    assert.match(await refusal('vllm', { apiKey: 'engine-key' }), /ACTOR_ENGINE_API_KEY/);
  });

  it('an address that is not the root of a server of this product is refused, with what to check', async () => {
    await using twin = await VllmTwin.start();
    await assert.rejects(
      openEngine([`${twin.url}/v1`]),
      /UserError: .*\/v1 .* is it a vLLM server \(--sampler\), and is --engine-url its root, without \/v1\?/s,
    );
    // As a server of another product may answer, which has the path for another method.
    await using other = createServer((_, response) => response.writeHead(405).end('{}')).listen(
      0,
      '127.0.0.1',
    );
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    await assert.rejects(openEngine([`http://127.0.0.1:${port}`]), /is it a vLLM server/);
  });

  it('an actor whose folder others took for abandoned while it waited for its engine makes it again', async () => {
    await using twin = await VllmTwin.start();
    await twin.stop();
    const adapterDir = await mkdtemp(join(tmpdir(), 'offbeat-engine-'));
    const opening = openEngine([twin.url], { adapterDir });
    await until(async () => (await readdir(adapterDir)).length === 1);
    const [own] = await readdir(adapterDir);
    await rm(join(adapterDir, own!), { recursive: true });
    await twin.start();
    await using _opened = await opening;
    await rm(adapterDir, { recursive: true });
  });

  it('the smallest of several engines decides the slots and the context', async () => {
    await using large = await VllmTwin.start({ slots: 9, maxContext: 100 });
    await using small = await VllmTwin.start({ slots: 7, maxContext: 50 });
    await using opened = await openEngine([large.url, small.url]);
    assert.deepEqual([opened.engine.maxVersions, opened.engine.maxContext], [7, 50]);
  });

  it('a server with several engines behind its address is refused, with what to start instead', async () => {
    await using twin = await VllmTwin.start();
    twin.moreMetrics = 'vllm:num_requests_running{engine="1",model_name="base"} 0.0';
    await assert.rejects(
      openEngine([twin.url]),
      /has 2 engines behind one address .* start 2 servers instead, and name each by --engine-url/,
    );
    assert.deepEqual([...twin.loaded], []);
  });

  it('an actor unloads the adapters of its predecessor, and no others', async () => {
    await using twin = await VllmTwin.start();
    for (const name of ['r.v1.0.a.0', 'r.v1.0.b.0', 'q.v1.0.a.0', 'sql'])
      twin.loaded.set(name, '/');
    await using opened = await openEngine([twin.url]);
    assert.deepEqual([...twin.loaded.keys()], ['r.v1.0.b.0', 'q.v1.0.a.0', 'sql']);
    assert.equal(opened.engine.trouble, undefined);
  });

  it('a server that refuses a token of its base model stops the actor, in the words of the server', async () => {
    assert.match(
      await refusal('vllm', { maxContext: 2 }),
      /cannot serve this run:\n {2}- .*maximum context length is 2 tokens/,
    );
  });

  it('a server that fails when it first samples, and does not unload either, is named with its first failure', async () => {
    await using twin = await new FailingTwin(twinFlags).start();
    await assert.rejects(openEngine([twin.url]), /EngineCore died/);
  });

  it('an actor that is refused leaves no folder behind', async () => {
    await using twin = await VllmTwin.start({ slots: 2 });
    const adapterDir = await mkdtemp(join(tmpdir(), 'offbeat-engine-'));
    await assert.rejects(openEngine([twin.url], { adapterDir }), UserError);
    assert.deepEqual(await readdir(adapterDir), []);
    await rm(adapterDir, { recursive: true });
  });
});
