import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { jsonReply } from '../../../learner/local-backend/http-api.js';
import { serveHttp, type HttpServer } from '../../../learner/local-backend/http-server.js';
import { silent } from '../../support/broker.js';

describe('the HTTP of the local backend', { timeout: 60_000 }, () => {
  let server: HttpServer;
  before(async () => {
    server = await serveHttp({
      host: '127.0.0.1',
      port: 0,
      apiKey: 'tml-right',
      log: silent,
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

  it('lets nobody in without the key, whatever is asked', async () => {
    for (const path of ['/echo', '/broken', '/nowhere']) {
      assert.equal((await ask(path, { headers: {} })).status, 401);
      for (const key of ['tml-wrong', 'tml-righ', 'tml-right2', '']) {
        assert((await ask(path, {}, key)).status >= 401, key);
        assert((await ask(path, {}, key)).status <= 403, key);
      }
    }
  });

  it('says what failed, without a stack', async () => {
    const { status, text } = await ask('/broken');
    assert.equal(status, 500);
    assert.match(text, /no such tensor/);
    assert.doesNotMatch(text, /\.js|\.ts|node:| at /);
  });

  it('reads no body beyond its limit', async () => {
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
