import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { register } from 'prom-client';
import { countdown } from '../../shared/tasks/countdown/task.js';
import type { Problem } from '../../shared/tasks/countdown/problem.js';
import type { Task } from '../../shared/tasks/task.js';
import { createLogger } from '../../shared/service/telemetry/logger.js';
import { serveScores } from '../../reward-service/http-server.js';
import type { HttpServer } from '../../shared/service/http-server.js';
import { countdownSpec } from '../support/countdown-task.js';
import { sendSlowly } from '../support/slow-client.js';
import { until } from '../support/waiting.js';
import { Turns } from '../../reward-service/turns.js';
import { dataset, trained } from './values.js';

const log = createLogger('test');
log.level = 'silent';
const task: Task<Problem> = {
  ...countdown.open(countdownSpec()),
  score: (problem, completion) => {
    if (completion === 'crash') throw new Error('a secret detail');
    return countdown.open(countdownSpec()).score(problem, completion);
  },
};
const judge = { problem: (id: string) => dataset.problem(id), task: () => task };
const { signal } = new AbortController();
const options = { host: '127.0.0.1', port: 0, key: undefined, judge, log, signal };

describe('POST /score', () => {
  let server: HttpServer;
  let url: string;
  before(async () => {
    server = await serveScores(options);
    url = `http://127.0.0.1:${server.port}/score`;
  });
  after(() => server[Symbol.asyncDispose]());

  const post = async (body: string | Uint8Array<ArrayBuffer>) => {
    const response = await fetch(url, { method: 'POST', body });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  const request = (completion: string) => JSON.stringify({ problemId: trained.id, completion });

  it('POST /score scores one completion, and several', async () => {
    const one = await post(request('(7-3)*21'));
    assert.deepEqual([one.status, one.body['reward']], [200, 1]);
    const two = await post(`[${request('(7-3)*21')},${request('7')}]`);
    assert.equal(two.status, 200);
    assert.equal(two.body['length'], 2);
  });

  it('POST /score is counted by reason', async () => {
    const counted = async () => {
      const text = await register.getSingleMetricAsString('reward_service_scores_total');
      return Number(/\{reason="no_answer",source="http"\} (\d+)/.exec(text)?.[1] ?? 0);
    };
    const before = await counted();
    await post(`[${request('')},${request(' ')}]`);
    assert.equal(await counted(), before + 2);
  });

  it('POST /score reports what is wrong with a request', async () => {
    assert.deepEqual(await post('{'), { status: 400, body: { error: 'the body is not JSON' } });
    assert.equal((await post(JSON.stringify({ problemId: 'x', completion: '' }))).status, 404);
  });

  it('the server names /score in its answers to other paths', async () => {
    const asGet = await fetch(url);
    assert.equal(asGet.status, 405);
    assert.deepEqual(await asGet.json(), { error: '/score takes POST only' });
    const elsewhere = await fetch(url.replace('/score', '/constructor'), { method: 'POST' });
    assert.equal(elsewhere.status, 404);
    assert.deepEqual(await elsewhere.json(), {
      error: 'there is no /constructor; try POST /score',
    });
  });

  it('the server measures the time of requests by status and the time of scoring', async () => {
    const counted = async (name: string, labels: string) => {
      const text = await register.getSingleMetricAsString(name);
      const line = text.split('\n').find((one) => one.startsWith(`${name}_count{${labels}}`));
      return Number(line?.split(' ')[1] ?? 0);
    };
    const counts = () =>
      Promise.all([
        counted('reward_service_http_seconds', 'status="200"'),
        counted('reward_service_http_seconds', 'status="400"'),
        counted('reward_service_judging_seconds', 'source="http"'),
      ]);
    const [answered, refused, judged] = await counts();
    await post(request('7'));
    await post('{');
    assert.deepEqual(await counts(), [answered + 1, refused + 1, judged + 1]);
  });

  it('POST /score says when to retry if there is no time to score', async () => {
    let now = 0;
    const turns = new Turns({ wholeMs: 2_500, now: () => (now += 2_500) });
    await using busy = await serveScores({ ...options, turns });
    const at = `http://127.0.0.1:${busy.port}/score`;
    const response = await fetch(at, { method: 'POST', body: request('7') });
    assert.deepEqual([response.status, response.headers.get('retry-after')], [503, '3']);
    const refused = await fetch(url, { method: 'POST', body: '{' });
    assert.equal(refused.headers.get('retry-after'), null);
  });

  it('the server closes connections once it is shutting down', async () => {
    const ending = new AbortController();
    await using closing = await serveScores({ ...options, signal: ending.signal });
    const ask = async () => {
      const at = `http://127.0.0.1:${closing.port}/score`;
      const response = await fetch(at, { method: 'POST', body: request('(7-3)*21') });
      assert.equal(response.status, 200);
      await response.arrayBuffer();
      return response.headers.get('connection');
    };
    assert.equal(await ask(), 'keep-alive');
    ending.abort();
    assert.equal(await ask(), 'close');
  });

  it('POST /score refuses more than a megabyte and continues serving', async () => {
    const { status, body } = await post(request('1'.repeat(1 << 20)));
    assert.equal(status, 413);
    assert.match(String(body['error']), /more than 1048576 bytes/);
    assert.equal((await post(request('7'))).status, 200);
  });

  it('POST /score says so too to a client that sends all of a large body before it reads', async () => {
    const large = request('1'.repeat(12 << 20));
    const socket = connect(server.port, '127.0.0.1');
    let answer = '';
    socket.on('data', (chunk) => (answer += chunk.toString()));
    socket.pause();
    socket.write(
      `POST /score HTTP/1.1\r\nhost: x\r\ncontent-length: ${Buffer.byteLength(large)}\r\n\r\n`,
    );
    await new Promise<void>((resolve, reject) => {
      socket.once('error', reject);
      socket.write(large, () => {
        resolve();
      });
    });
    socket.resume();
    await until(() => answer.includes('}'));
    socket.destroy();
    assert.match(answer, /^HTTP\/1\.1 413 [^]*more than 1048576 bytes/);
  });

  it('POST /score survives a body that ends early and one that is not UTF-8', async () => {
    await new Promise<void>((resolve) => {
      const socket = connect(server.port, '127.0.0.1', () => {
        socket.write('POST /score HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"comp');
        socket.end();
      });
      socket.resume().once('close', () => {
        resolve();
      });
    });
    assert.equal((await post(Uint8Array.of(0xff, 0xfe, 0x7b))).status, 400);
    assert.equal((await post(request('7'))).status, 200);
  });

  it('POST /score does not expose internal errors', async () => {
    const { status, body } = await post(request('crash'));
    assert.equal(status, 500);
    assert(!JSON.stringify(body).includes('secret'));
  });

  it('the server names the remedy when its port is taken', async () => {
    await assert.rejects(serveScores({ ...options, port: server.port }), {
      name: 'UserError',
      message: /cannot serve scores on 127\.0\.0\.1:\d+ .*choose another --http-port/,
    });
    await assert.rejects(serveScores({ ...options, host: 'nowhere.invalid' }), {
      message: /\(getaddrinfo .*\); choose another --http-host$/,
    });
  });
});

describe('POST /score with a key', () => {
  const key = 'one-two-three-four-five';
  const body = JSON.stringify({ problemId: trained.id, completion: '(7-3)*21' });

  it('POST /score with a key answers only requests that have the key', async () => {
    await using server = await serveScores({ ...options, key });
    const url = `http://127.0.0.1:${server.port}`;
    const post = async (headers: Record<string, string>) => {
      const response = await fetch(`${url}/score`, { method: 'POST', body, headers });
      return { status: response.status, body: (await response.json()) as Record<string, unknown> };
    };
    assert.equal((await post({ 'x-api-key': key })).status, 200);
    assert.deepEqual(await post({}), {
      status: 401,
      body: { error: 'send the key of this service in X-API-Key' },
    });
    for (const wrong of [key.slice(1), `${key}x`, ' ']) {
      const { status, body: refusal } = await post({ 'x-api-key': wrong });
      assert.equal(status, 403);
      assert.match(String(refusal['error']), /the key in X-API-Key is not that of this service/);
      assert(!JSON.stringify(refusal).includes(key));
    }
    const description = await fetch(`${url}/openapi.json`);
    assert.equal(description.status, 200);
  });

  it('a request without the key is refused before its body is read', async () => {
    await using server = await serveScores({ ...options, key });
    const head = 'POST /score HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n';
    assert.match(await sendSlowly(server.port, head, ''), /^HTTP\/1\.1 401 /);
  });
});

describe('POST /score while the run is scored', () => {
  it('a score request yields its thread between its completions', async () => {
    const problem = { nums: [3, 7, 21], target: 84 };
    const busyMs = 6; // longer than a slice
    let scored = 0;
    const slow: Task<Problem> = {
      ...task,
      score: (...args) => {
        const end = performance.now() + busyMs;
        while (performance.now() < end);
        scored++;
        return task.score(...args);
      },
    };
    await using server = await serveScores({ ...options, judge: { ...judge, task: () => slow } });
    const turnsOfOthers: number[] = [];
    let isOver = false;
    const others = () => {
      if (isOver) return;
      turnsOfOthers.push(scored);
      setImmediate(others);
    };
    const response = fetch(`http://127.0.0.1:${server.port}/score`, {
      method: 'POST',
      body: JSON.stringify(Array(20).fill({ problem, completion: '7' })),
    });
    others();
    assert.equal((await response).status, 200);
    isOver = true;
    // Somebody else had a turn after every single completion.
    for (let after = 0; after <= 20; after++) assert(turnsOfOthers.includes(after), String(after));
  });
});

describe('a client of /score that sends as slowly as it can', { timeout: 60_000 }, () => {
  const start = () => serveScores({ ...options, arrival: { headersMs: 200, wholeMs: 400 } });
  const begin = 'POST /score HTTP/1.1\r\nhost: x\r\n';
  const tooSlow = /^HTTP\/1\.1 408 [^]*\r\n\r\n\{"error":"the request took too long to arrive"\}$/;

  it('a slow client is disconnected when its headers never end', async () => {
    await using server = await start();
    assert.match(await sendSlowly(server.port, begin, 'x-more: 1\r\n'), tooSlow);
  });

  it('a slow client is disconnected when its body never ends, with and without a length', async () => {
    await using server = await start();
    const counted = await sendSlowly(server.port, `${begin}content-length: 1000000\r\n\r\n`, ' ');
    assert.match(counted, tooSlow);
    const chunks = `${begin}transfer-encoding: chunked\r\n\r\n`;
    assert.match(await sendSlowly(server.port, chunks, '1\r\n \r\n'), tooSlow);
  });

  it('a slow client does not delay other clients', async () => {
    await using server = await start();
    const slow = Array.from({ length: 20 }, () => sendSlowly(server.port, begin, 'x-more: 1\r\n'));
    const response = await fetch(`http://127.0.0.1:${server.port}/openapi.json`);
    assert.equal(response.status, 200);
    for (const said of await Promise.all(slow)) assert.match(said, tooSlow);
  });

  it('a client gets an error when it does not send HTTP', async () => {
    await using server = await start();
    assert.match(
      await sendSlowly(server.port, 'hello\r\n\r\n', ''),
      /^HTTP\/1\.1 400 [^]*\{"error":"this is not HTTP: /,
    );
  });
});
