import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { pino } from 'pino';
import { jsonReply } from '../../local-backend/http-api.js';
import { serveApi } from '../../local-backend/http-server.js';
import type { HttpServer } from '../../shared/service/http-server.js';
import { silent } from '../support/log.js';
import { sendSlowly } from '../support/slow-client.js';

describe('the HTTP server of the local backend', { timeout: 60_000 }, () => {
  const lines: Line[] = [];
  let server: HttpServer;
  before(async () => {
    server = await serveApi({
      host: '127.0.0.1',
      port: 0,
      apiKey: 'tml-right',
      log: pino({}, { write: (line: string) => void lines.push(JSON.parse(line) as Line) }),
      routes: [
        {
          method: 'POST',
          path: '/echo',
          handle: async (request) => jsonReply(200, (await request.body()).byteLength),
        },
        {
          method: 'GET',
          path: '/broken',
          handle: () => Promise.reject(new Error('no such tensor')),
        },
      ],
    });
  });
  after(() => server[Symbol.asyncDispose]());

  const ask = async (path: string, init: RequestInit = {}, key = 'tml-right') => {
    const headers = { 'x-api-key': key };
    const response = await fetch(`http://127.0.0.1:${server.port}${path}`, { headers, ...init });
    return { status: response.status, text: await response.text() };
  };

  it('the server refuses every path without the key', async () => {
    for (const path of ['/echo', '/broken', '/nowhere']) {
      assert.equal((await ask(path, { headers: {} })).status, 401);
      for (const key of ['tml-wrong', 'tml-righ', 'tml-right2', '']) {
        assert((await ask(path, {}, key)).status >= 401, key);
        assert((await ask(path, {}, key)).status <= 403, key);
      }
    }
  });

  it('the server logs an internal error under an id and sends only the id to the client', async () => {
    const { status, text } = await ask('/broken');
    assert.equal(status, 500);
    const { detail } = JSON.parse(text) as { detail: string };
    const [, id] = /^Server error ([0-9a-f-]{36}); see the log of the backend$/.exec(detail)!;
    const logged = lines.find((line) => line.id === id);
    assert.deepEqual([logged?.err?.message, logged?.route], ['no such tensor', 'GET /broken']);
  });

  it('the server refuses a body above its limit', async () => {
    const body = Buffer.alloc(1_000);
    assert.deepEqual(await ask('/echo', { method: 'POST', body }), { status: 200, text: '1000' });
    const large = new ReadableStream({
      pull(controller) {
        controller.enqueue(new Uint8Array(2 ** 22));
      },
    });
    const endless = { method: 'POST', body: large, duplex: 'half' } as RequestInit;
    assert.equal((await ask('/echo', endless)).status, 413);
  });
});

describe('a client that sends very slowly', { timeout: 60_000 }, () => {
  const start = () =>
    serveApi({
      host: '127.0.0.1',
      port: 0,
      apiKey: 'tml-right',
      log: silent,
      arrival: { headersMs: 200, wholeMs: 400 },
      routes: [
        {
          method: 'POST',
          path: '/echo',
          handle: async (request) => jsonReply(200, (await request.body()).byteLength),
        },
      ],
    });
  const head = 'POST /echo HTTP/1.1\r\nhost: x\r\nx-api-key: tml-right\r\n';

  it('a slow client gets 408 when its headers do not end', async () => {
    await using server = await start();
    const response = await sendSlowly(server.port, head, 'x-more: 1\r\n');
    assert.match(response, /^HTTP\/1\.1 408 [^]*took too long/);
  });

  it('a slow client gets 408 when its body does not end, with and without a length', async () => {
    await using server = await start();
    const counted = await sendSlowly(server.port, `${head}content-length: 1000000\r\n\r\n`, 'x');
    assert.match(counted, /^HTTP\/1\.1 408 /);
    const chunks = `${head}transfer-encoding: chunked\r\n\r\n`;
    assert.match(await sendSlowly(server.port, chunks, '1\r\nx\r\n'), /^HTTP\/1\.1 408 /);
  });

  it('a slow client does not delay other clients', async () => {
    await using server = await start();
    const slow = Array.from({ length: 20 }, () => sendSlowly(server.port, head, 'x-more: 1\r\n'));
    const response = await fetch(`http://127.0.0.1:${server.port}/echo`, {
      method: 'POST',
      body: 'abc',
      headers: { 'x-api-key': 'tml-right' },
    });
    assert.equal(await response.text(), '3');
    for (const refused of await Promise.all(slow)) assert.match(refused, /^HTTP\/1\.1 408 /);
  });
});

interface Line {
  readonly id?: string;
  readonly route?: string;
  readonly err?: { readonly message: string };
}
