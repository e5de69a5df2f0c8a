import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { engineFindings } from '../../../cli/doctor/engine.js';
import { type Finding, remedies, type Trouble } from '../../../cli/doctor/finding.js';
import { freePort } from '../../../cli/processes/free-port.js';
import type { TwinFlags } from '../../support/engine-twin.js';
import { SglangTwin } from '../../support/sglang-twin.js';
import { VllmTwin } from '../../support/vllm-twin.js';

const { signal } = new AbortController();

/** The findings about a twin that was started with these flags. */
async function findings(
  Twin: typeof VllmTwin | typeof SglangTwin,
  flags: Partial<TwinFlags> = {},
  apiKey?: string,
): Promise<Finding[]> {
  await using twin = await Twin.start(flags);
  return await engineFindings({ urls: [twin.url], apiKey, signal });
}

/** Each check that is not ok: its level and the name of its remedy. */
function troubles(found: readonly Finding[]): [check: string, level: string, remedy: string][] {
  const nameOf = (remedy: string | undefined) =>
    Object.entries(remedies).find(([, text]) => text === remedy)?.[0] as Trouble;
  return found
    .filter(({ level }) => level !== 'ok')
    .map(({ check, level, remedy }) => [check, level, nameOf(remedy)]);
}

/** Answers a request as the server at `url` does. */
async function pass(
  request: IncomingMessage,
  response: ServerResponse,
  url: string,
): Promise<void> {
  const { method = 'GET', headers } = request;
  const body = await buffer(request);
  const type = headers['content-type'];
  const answer = await fetch(url + request.url!, {
    ...{ method, headers: type === undefined ? {} : { 'content-type': type } },
    ...(body.length > 0 && { body }),
  });
  response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? '' });
  response.end(Buffer.from(await answer.arrayBuffer()));
}

describe("the doctor's findings about an engine", () => {
  it('the doctor names a vLLM with its release, context, slots and cache, and loads nothing', async () => {
    await using twin = await VllmTwin.start();
    const found = await engineFindings({ urls: [twin.url], apiKey: undefined, signal });
    assert.deepEqual(troubles(found), []);
    const [engine, slots, metrics] = found.map((each) => each.found);
    assert.equal(engine, `vLLM 0.32.0 at ${twin.url}, 64 tokens in a context`);
    assert.match(slots!, /^room for 6 adapters in a batch, 0 are loaded.*up to 4$/);
    assert.equal(
      metrics,
      'a cache of 1024 tokens, 25 % of the cache in use, 0 sequences running, 0 queued',
    );
    assert.deepEqual(twin.everLoaded, []);
  });

  it('the doctor recognizes SGLang', async () => {
    const found = await findings(SglangTwin);
    assert.deepEqual(troubles(found), []);
    assert.match(found[0]!.found, /^SGLang 0\.5\.23 at /);
  });

  it('the doctor gives the remedy for each thing that an engine lacks', async () => {
    const cases: [typeof VllmTwin | typeof SglangTwin, Partial<TwinFlags>, string[]][] = [
      [VllmTwin, { samplesByIds: false }, ['engine', 'error', 'asItSays']],
      [VllmTwin, { loadsAtRuntime: false }, ['engine', 'error', 'asItSays']],
      [VllmTwin, { maxContext: 1 }, ['engine', 'error', 'asItSays']],
      [
        VllmTwin,
        { appliesTemperature: false },
        ['engine-logprobs', 'warning', 'engineTemperature'],
      ],
      [VllmTwin, { abortsCalls: false }, ['engine-abort', 'warning', 'engineAbort']],
      [VllmTwin, { slots: 1 }, ['engine-slots', 'error', 'engineSlotsFew']],
      [VllmTwin, { tellsSlots: false }, ['engine-slots', 'skipped', 'engineSlotsUnknown']],
      [VllmTwin, { showsMetrics: false }, ['engine-metrics', 'warning', 'engineMetrics']],
      [SglangTwin, { showsMetrics: false }, ['engine-metrics', 'warning', 'engineMetricsSglang']],
      [SglangTwin, { takesAdapters: false }, ['engine', 'error', 'asItSays']],
    ];
    for (const [Twin, flags, expected] of cases) {
      assert.deepEqual(troubles(await findings(Twin, flags)), [expected], JSON.stringify(flags));
    }
  });

  it('the doctor says which question an engine does not answer, and goes on with the next engine', async () => {
    await using twin = await VllmTwin.start();
    const mute = createServer((request, response) => {
      if (request.url === '/metrics') request.socket.destroy();
      else void pass(request, response, twin.url);
    }).listen(0, '127.0.0.1');
    await once(mute, 'listening');
    const { port } = mute.address() as AddressInfo;
    const urls = [`http://127.0.0.1:${port}`, twin.url];
    const found = await engineFindings({ urls, apiKey: undefined, signal }).finally(() => {
      mute.close().closeAllConnections();
    });
    assert.deepEqual(troubles(found), [['engine-metrics', 'error', 'engineUnreachable']]);
    assert.equal(found.filter(({ check }) => check === 'engine').length, 2);
  });

  it('the doctor tells a missing key from a silent address and from another server', async () => {
    const key = { apiKey: 'engine-key' };
    assert.deepEqual(troubles(await findings(VllmTwin, key)), [
      ['engine', 'error', 'engineRefuses'],
    ]);
    assert.deepEqual(troubles(await findings(VllmTwin, key, 'engine-key')), []);
    const ask = (url: string) => engineFindings({ urls: [url], apiKey: undefined, signal });
    assert.deepEqual(troubles(await ask(`http://127.0.0.1:${await freePort()}`)), [
      ['engine', 'error', 'engineUnreachable'],
    ]);
    const other = createServer((_, response) => response.end('{"status": "ok"}'));
    other.listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    assert.deepEqual(troubles(await ask(`http://127.0.0.1:${port}`)), [
      ['engine', 'error', 'noEngine'],
    ]);
    other.close();
  });
});
