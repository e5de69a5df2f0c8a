import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { z } from 'zod';
import { CreateSessionRequest } from '../../shared/tinker/api.js';
import {
  accessOf,
  ApiError,
  type ApiRequest,
  matchPath,
  readJson,
  readPage,
} from '../../local-backend/http-api.js';

function request(body: string, contentType = 'application/json'): ApiRequest {
  return {
    headers: { 'content-type': contentType },
    query: new URLSearchParams(),
    access: 'all',
    params: [],
    signal: new AbortController().signal,
    body: () => Promise.resolve(Buffer.from(body)),
  };
}

const status = (expected: number) => (error: unknown) =>
  error instanceof ApiError && error.status === expected;

describe('a route', () => {
  it('a route pattern matches a path segment by segment', () => {
    assert.deepEqual(matchPath('/runs/:run', '/runs/r1'), ['r1']);
    assert.equal(matchPath('/runs/:run', '/runs/r1/more'), undefined);
    assert.equal(matchPath('/runs/:run', '/runs/'), undefined);
    assert.equal(matchPath('/runs', '/walks'), undefined);
  });

  it('a route pattern matches one or more parts of the path with a star', () => {
    assert.deepEqual(matchPath('/runs/:run/c/*', '/runs/r1/c/weights/a/archive'), [
      'r1',
      'weights/a/archive',
    ]);
    assert.equal(matchPath('/runs/:run/c/*', '/runs/r1/c'), undefined);
    assert.deepEqual(matchPath('/c/*/archive', '/c/weights/a/archive'), ['weights/a']);
    assert.deepEqual(matchPath('/c/*/archive', '/c/a/archive'), ['a']);
    assert.equal(matchPath('/c/*/archive', '/c/archive'), undefined);
    assert.equal(matchPath('/c/*/archive', '/c/weights/a/ttl'), undefined);
  });
});

describe('a JSON body', () => {
  const schema = z.object({ seq_id: z.union([z.number(), z.string()]) });

  it('a JSON body keeps every digit of a long sequence id', async () => {
    const body = '{"seq_id": 999999999000000001}';
    assert.deepEqual(await readJson(request(body), schema), { seq_id: '999999999000000001' });
    assert.deepEqual(await readJson(request('{"seq_id":7}'), schema), { seq_id: 7 });
  });

  it('a JSON body keeps every digit of a long seed', async () => {
    const wide = z.object({ seed: z.string(), data: z.string() });
    const body = '{"data":"\\"seed\\": 5", "seed":-9223372036854775808}';
    assert.deepEqual(await readJson(request(body), wide), {
      data: '"seed": 5',
      seed: '-9223372036854775808',
    });
  });

  it('a JSON body is refused with all violations of its schema', async () => {
    const strict = z.object({ a: z.int(), b: z.string() });
    await assert.rejects(readJson(request('{"a":1.5}'), strict), (error) => {
      assert(error instanceof ApiError);
      assert.equal(error.status, 422);
      assert(Array.isArray(error.detail));
      assert.deepEqual(
        error.detail.map(({ loc }: { loc: unknown }) => loc),
        [
          ['body', 'a'],
          ['body', 'b'],
        ],
      );
      return true;
    });
  });

  it('a JSON body is refused for its size in memory before it is parsed', async () => {
    const any = z.unknown();
    const bounds = { bytes: 1_000, values: 100, containers: 10, depth: 5 };
    const detail = (words: RegExp) => (error: unknown) => {
      assert(error instanceof ApiError);
      assert.equal(error.status, 413);
      assert(typeof error.detail === 'string');
      assert.match(error.detail, words);
      return true;
    };
    const many = `[${'1,'.repeat(100)}1]`;
    await assert.rejects(readJson(request(many), any, bounds), detail(/more than 100 values/));
    const empty = `[${'[],'.repeat(10)}1] and no JSON`;
    await assert.rejects(
      readJson(request(empty), any, bounds),
      detail(/^the body of 45 bytes has more than 10 arrays and objects; send it in parts$/),
    );
    await assert.rejects(readJson(request('['.repeat(6)), any, bounds), detail(/5 deep/));
  });

  it('a JSON body is refused with the first 20 violations when there are more', async () => {
    const body = JSON.stringify({ tags: Array(900).fill(1), sdk_version: '1' });
    await assert.rejects(readJson(request(body), CreateSessionRequest), (error) => {
      assert(error instanceof ApiError && Array.isArray(error.detail));
      assert.equal(error.detail.length, 20);
      return true;
    });
  });

  it('a body is refused when it is not JSON or has another content type', async () => {
    await assert.rejects(readJson(request('{'), schema), status(422));
    await assert.rejects(readJson(request('{}', 'text/plain'), schema), status(415));
  });
});

describe('a listing', () => {
  it('a listing reads limit and offset, or their defaults', () => {
    assert.deepEqual(readPage(new URLSearchParams('limit=5&offset=10'), 20), {
      limit: 5,
      offset: 10,
    });
    assert.deepEqual(readPage(new URLSearchParams(), 20), { limit: 20, offset: 0 });
  });

  it('a listing is refused with a limit or an offset that is not a count', () => {
    for (const query of ['limit=0', 'offset=-1', 'limit=many', 'offset=1.5']) {
      assert.throws(() => readPage(new URLSearchParams(query), 20), status(422));
    }
  });
});

describe('the API key', () => {
  const keys = { apiKey: 'tml-right', samplingApiKey: 'tml-sample' };

  it('an API key determines the access of a request', () => {
    assert.equal(accessOf({ 'x-api-key': 'tml-right' }, keys), 'all');
    assert.equal(accessOf({ 'x-api-key': 'tml-sample' }, keys), 'sampling');
    assert.equal(accessOf({ 'x-api-key': 'tml-right' }, { apiKey: 'tml-right' }), 'all');
  });

  it('a missing API key is answered with 401 and a wrong one with 403', () => {
    assert.throws(() => accessOf({}, keys), status(401));
    for (const key of ['tml-wrong', 'tml-right ', 'tml-sampl', '', 'undefined']) {
      assert.throws(() => accessOf({ 'x-api-key': key }, keys), status(403));
      assert.throws(() => accessOf({ 'x-api-key': key }, { apiKey: 'tml-right' }), status(403));
    }
  });
});
