import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { UserError } from '../../../shared/base/errors.js';
import { createLogger } from '../../../shared/service/telemetry/logger.js';
import { TinkerClient } from '../../../shared/tinker/client.js';
import { expectedId } from '../../../shared/tinker/errors.js';
import { shakeHands } from '../../../shared/tinker/handshake.js';
import { NoAnswer, TinkerHttp } from '../../../shared/tinker/http.js';
import { retryDelayMs, wasNeverSent } from '../../../shared/tinker/retry.js';
import { unlessAborted } from '../../../shared/base/task-scope.js';
import { silent } from '../../support/log.js';
import { gate } from '../../support/waiting.js';
import { connectTo, ScriptedServer } from './scripted-server.js';

const { signal } = new AbortController();

describe('connecting', () => {
  it('connecting sends the key and keeps the path of the base URL', async () => {
    await using server = await ScriptedServer.start();
    const { client } = await connectTo(server, { baseUrl: `${server.url}/prod/x/` });
    await using _closed = client;
    assert.deepEqual(
      server.seen.map(({ method, path }) => `${method} ${path}`),
      ['POST client/config', 'GET get_server_capabilities', 'POST create_session'],
    );
    assert(server.seen.every(({ headers }) => headers['x-api-key'] === 'tml-test'));
    assert.deepEqual(client.models, [{ name: 'base', maxContextLength: 64 }]);
    assert.deepEqual(server.seen[2]!.json, {
      type: 'create_session',
      tags: [],
      user_metadata: {},
      sdk_version: '0.25.0',
    });
  });

  it('connecting waits briefly for a server that is starting', async () => {
    await using server = await ScriptedServer.start();
    const ready = { json: {} };
    server.script('POST client/config', 'cut', { status: 503, json: { detail: 'soon' } }, ready);
    const { client } = await connectTo(server);
    await client[Symbol.asyncDispose]();
    assert.equal(server.sent('client/config').length, 3);
  });

  it('connecting sends the request again after 10 s if the network lost the first one', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const asked: string[] = [];
    const lost = (by: AbortSignal) =>
      new Promise<Response>((_, reject) => {
        by.addEventListener('abort', () => {
          reject(by.reason as Error);
        });
      });
    const http = new TinkerHttp({
      baseUrl: 'http://tinker.example',
      apiKey: 'tml-test',
      log: silent,
      sleep: () => Promise.resolve(),
      fetch: (url, init) => {
        asked.push((url as string).split('/').at(-1)!);
        return asked.length === 1
          ? lost(init!.signal!)
          : Promise.resolve(Response.json({ supported_models: [] }));
      },
    });
    const shaken = shakeHands(http, 'tml-test', 60_000, signal);
    await new Promise(setImmediate);
    assert.deepEqual(asked, ['config']);
    t.mock.timers.tick(10_000);
    await shaken;
    assert.deepEqual(asked, ['config', 'config', 'get_server_capabilities']);
  });

  it('connecting names the remedy if no server listens at the address', async () => {
    await using server = await ScriptedServer.start();
    const closed = await ScriptedServer.start();
    const baseUrl = closed.url;
    await closed[Symbol.asyncDispose]();
    await assert.rejects(connectTo(server, { baseUrl }), (error) => {
      assert(error instanceof UserError);
      assert(error.message.startsWith(`no Tinker server can be used at ${baseUrl}: `));
      assert.match(error.message, /ECONNREFUSED.*give another backend URL/s);
      return true;
    });
  });

  it('connecting reports a server that is not a Tinker server', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST client/config', { bytes: '<h1>It works!</h1>', type: 'text/html' });
    await assert.rejects(connectTo(server), (error) => {
      assert(error instanceof UserError);
      assert.match(error.message, /It works!/);
      return true;
    });
  });

  it('connecting names the key as the cause, without printing it', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST client/config', { status: 403, json: { detail: 'Invalid API key' } });
    await assert.rejects(connectTo(server), (error) => {
      assert(error instanceof UserError);
      assert.match(error.message, /answered 403: Invalid API key. Check the API key/);
      assert(!error.message.includes('tml-test'));
      return true;
    });
  });

  it('connecting does not follow a redirect with the key', async () => {
    await using elsewhere = await ScriptedServer.start();
    await using server = await ScriptedServer.start();
    const location = `${elsewhere.url}/api/v1/client/config`;
    server.script('POST client/config', { status: 307, headers: { location } });
    await assert.rejects(connectTo(server), /it redirects to/);
    assert.equal(elsewhere.seen.length, 0);
  });

  for (const [name, options, complaint] of [
    ['no URL', { baseUrl: 'localhost:10610' }, /"localhost:10610": expected http/],
    ['a URL with a password', { baseUrl: 'http://me:secret@host' }, /carries a user/],
    ['an empty key', { apiKey: '' }, /the API key is empty/],
  ] as const) {
    it(`connecting refuses ${name}`, async () => {
      const log = createLogger('test');
      const given = { baseUrl: 'http://127.0.0.1:1', apiKey: 'tml-x', log, signal, ...options };
      await assert.rejects(TinkerClient.connect(given), (error) => {
        assert(error instanceof UserError);
        assert.match(error.message, complaint);
        assert(!error.message.includes('secret'));
        return true;
      });
    });
  }

  it('connecting exchanges the key for a token if the server requires it', async () => {
    await using server = await ScriptedServer.start();
    const jwt = (minutes: number) => {
      const claims = JSON.stringify({ exp: Date.now() / 1000 + minutes * 60 });
      return `eyJ.${Buffer.from(claims).toString('base64url')}.x`;
    };
    const [short, long] = [jwt(0.5), jwt(60)];
    server.on('POST client/config', () => ({ json: { pjwt_auth_enabled: true } }));
    server.script('POST auth/token', { json: { jwt: short } }, { json: { jwt: long } });
    const { client } = await connectTo(server);
    await client[Symbol.asyncDispose]();
    assert.deepEqual(
      server.seen.map(({ path, headers }) => [path, headers['x-api-key']]),
      [
        ['client/config', 'tml-test'],
        ['auth/token', 'tml-test'],
        ['get_server_capabilities', short],
        ['auth/token', 'tml-test'], // half a minute left is too short
        ['create_session', long],
      ],
    );
  });

  it('the validity of a token is counted from its arrival, whatever the clock of the server', async () => {
    await using server = await ScriptedServer.start();
    const iat = Date.now() / 1_000 - 7_200; // two hours behind
    const claims = JSON.stringify({ iat, exp: iat + 3_600 });
    const jwt = `eyJ.${Buffer.from(claims).toString('base64url')}.x`;
    server.on('POST client/config', () => ({ json: { pjwt_auth_enabled: true } }));
    server.on('POST auth/token', () => ({ json: { jwt } }));
    const { client } = await connectTo(server);
    await client[Symbol.asyncDispose]();
    assert.equal(server.seen.filter(({ path }) => path === 'auth/token').length, 1);
  });
});

describe('a request that is given up while it waits for a token', () => {
  it('it leaves the token to the requests beside it', async () => {
    const { opened, open } = gate();
    const jwt = (minutes: number) => {
      const claims = JSON.stringify({ exp: Date.now() / 1000 + minutes * 60 });
      return `eyJ.${Buffer.from(claims).toString('base64url')}.x`;
    };
    let exchanges = 0;
    const http = new TinkerHttp({
      ...{ baseUrl: 'http://tinker.example', apiKey: 'tml-test', log: silent },
      fetch: async (url, init) => {
        const path = (url as string).split('/').at(-1)!;
        if (path === 'config') return Response.json({ pjwt_auth_enabled: true });
        if (path === 'get_server_capabilities') return Response.json({ supported_models: [] });
        if (path !== 'token') return Response.json({});
        if (++exchanges === 1) return Response.json({ jwt: jwt(0.5) }); // too short for the next request
        await unlessAborted(opened, init!.signal!);
        return Response.json({ jwt: jwt(60) });
      },
    });
    await shakeHands(http, 'tml-test', 60_000, signal);
    const renewed = exchanges;
    const caller = new AbortController();
    const request = { operation: 'optim_step', path: '/api/v1/optim_step' };
    const givenUp = http.send(request, caller.signal);
    const other = http.send(request, signal);
    caller.abort(new Error('given up'));
    await assert.rejects(givenUp, /given up/);
    open();
    assert.equal((await other).status, 200);
    assert.equal(exchanges, renewed + 1);
  });
});

describe('one attempt', () => {
  it('an attempt ends at its time limit, and it stays unknown whether the request arrived', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST slow', 'hang');
    const http = new TinkerHttp({
      baseUrl: server.url,
      apiKey: 'tml-x',
      log: createLogger('test'),
    });
    const request = { operation: 'slow', path: '/api/v1/slow', timeoutMs: 50 };
    await assert.rejects(http.send(request, signal), (error) => {
      assert(error instanceof NoAnswer && error.isTimeout && !error.isUnsent);
      assert.equal(error.message, 'no answer within 0.05 s');
      return true;
    });
  });

  it('an attempt ends with the caller’s signal', async () => {
    await using server = await ScriptedServer.start();
    server.script('POST slow', 'hang');
    const log = createLogger('test');
    const http = new TinkerHttp({ baseUrl: server.url, apiKey: 'tml-x', log });
    const caller = new AbortController();
    const answer = http.send({ operation: 'slow', path: '/api/v1/slow' }, caller.signal);
    caller.abort(new Error('enough'));
    await assert.rejects(answer, /enough/);
  });
});

describe('the wait before another attempt', () => {
  const asked = (headers: Record<string, string>) => retryDelayMs(0, new Headers(headers), 0);

  it('the wait doubles from half a second to thirty, less up to a quarter', () => {
    const waits = [0, 1, 2, 6, 20].map((attempt) => retryDelayMs(attempt, undefined, 0));
    assert.deepEqual(waits, [500, 1000, 2000, 30_000, 30_000]);
    assert.equal(retryDelayMs(1, undefined, 1), 750);
  });

  it('the wait is the one that the server requests, up to a minute', () => {
    assert.equal(asked({ 'retry-after-ms': '1500' }), 1500);
    assert.equal(asked({ 'retry-after': '2' }), 2000);
    assert.equal(asked({ 'retry-after': '3600' }), 500);
    assert.equal(asked({ 'retry-after': 'soon' }), 500);
    const now = new Date('2026-01-01T00:00:00Z');
    const headers = new Headers({ 'retry-after': 'Thu, 01 Jan 2026 00:00:20 GMT' });
    assert.equal(retryDelayMs(0, headers, 0, now), 20_000);
  });

  it('errors from before the request was sent are recognized', () => {
    const failure = (code: string) => new TypeError('fetch failed', { cause: { code } });
    assert(wasNeverSent(failure('ECONNREFUSED')));
    assert(!wasNeverSent(failure('ECONNRESET')));
    assert(!wasNeverSent(new Error('other')));
  });
});

describe('the text of a conflict', () => {
  it('the expected id is read from a conflict as TuFT and the local backend write it', () => {
    assert.equal(expectedId('Sequence conflict: expected 5, got 6.'), 5);
    assert.equal(
      expectedId('Failed to retrieve future: Sequence conflict: expected 12, got 0.'),
      12,
    );
    assert.equal(expectedId('the shapes differ'), undefined);
  });
});
