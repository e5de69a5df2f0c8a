import assert from 'node:assert/strict';
import { get, request, type IncomingMessage } from 'node:http';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, it } from 'node:test';
import { refusalOf, serveDashboard } from '../../../cli/dashboard/server.js';
import { runView } from '../../support/run-view.js';
import { sendSlowly } from '../../support/slow-client.js';
import { until } from '../../support/waiting.js';

const serve = (now = () => Promise.resolve(runView())) =>
  serveDashboard({ port: 0, everyMs: 10, now });

async function answered(url: string, options: { method?: string; host?: string } = {}) {
  const { method = 'GET', host } = options;
  const asking = request(url, { method, headers: host === undefined ? {} : { host } });
  asking.end();
  const [response] = (await once(asking, 'response')) as [IncomingMessage];
  return { status: response.statusCode, headers: response.headers, body: await text(response) };
}

describe('the guard of the dashboard', () => {
  it('the guard admits requests to this machine by its own names, also through a tunnel', () => {
    for (const host of ['127.0.0.1:41234', 'localhost:8080', 'LOCALHOST', '[::1]:80']) {
      assert.equal(refusalOf('GET', host), undefined, host);
    }
  });

  it('the guard refuses every other host name, since a foreign name may point at loopback', () => {
    const strange = [
      'evil.example:41234',
      'localhost.evil.example',
      '127.0.0.1.evil.example',
      '10.0.0.7',
      '',
    ];
    for (const host of [...strange, undefined]) assert.equal(refusalOf('GET', host)?.status, 421);
  });

  it('the guard refuses every request that is not a read', () => {
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS', undefined]) {
      assert.equal(refusalOf(method, 'localhost')?.status, 405);
    }
  });
});

describe('the dashboard', { timeout: 120_000 }, () => {
  it('the dashboard closes a connection whose headers never end', async () => {
    const now = () => Promise.resolve(runView());
    await using page = await serveDashboard({ port: 0, everyMs: 10, now, patienceMs: 200 });
    const begin = 'GET / HTTP/1.1\r\nhost: localhost\r\n';
    const said = await sendSlowly(Number(new URL(page.url).port), begin, 'x-more: 1\r\n');
    assert.match(said, /^HTTP\/1\.1 408 /);
  });

  it('the dashboard serves the page and its files, which load only from the dashboard', async () => {
    await using page = await serve();
    const { status, headers, body } = await answered(page.url);
    assert.equal(status, 200);
    const policy = String(headers['content-security-policy']);
    assert.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self'/);
    assert.doesNotMatch(policy, /unsafe|https?:|\*/);
    assert.match(body, /<h1>test /);
    for (const [, path] of body.matchAll(/(?:href|src)="(\/[^"]*)"/g)) {
      assert.equal((await answered(new URL(path!, page.url).href)).status, 200, path);
    }
    const script = await answered(new URL('/page/main.js', page.url).href);
    for (const [, path] of script.body.matchAll(/from '\.\/([^']+)'/g)) {
      assert.equal((await answered(new URL(`/page/${path}`, page.url).href)).status, 200, path);
    }
  });

  it('the dashboard serves no other file', async () => {
    await using page = await serve();
    for (const path of ['/page/../server.js', '/page/%2e%2e/server.js', '/etc/passwd', '/page/']) {
      assert.equal((await answered(page.url.replace(/\/$/, path))).status, 404, path);
    }
    assert.equal((await answered(page.url, { host: 'evil.example' })).status, 421);
    assert.equal((await answered(page.url, { method: 'POST' })).status, 405);
  });

  it('the dashboard listens only on loopback', async () => {
    await using page = await serve();
    assert.match(page.url, /^http:\/\/127\.0\.0\.1:\d+\/$/);
  });

  it('the dashboard names the flag if its port is occupied', async () => {
    await using page = await serve();
    const port = Number(new URL(page.url).port);
    const second = serveDashboard({ port, everyMs: 10, now: () => Promise.resolve(runView()) });
    await assert.rejects(second, /cannot serve the dashboard on 127.0.0.1:\d+ .*--dashboard-port/);
  });

  it("the dashboard reads the run only while a page is open, and closes the page's stream at the end", async () => {
    let looks = 0;
    const page = await serve(() => Promise.resolve(runView({ run: `look-${++looks}` })));
    try {
      await answered(new URL('/style.css', page.url).href);
      assert.equal(looks, 0);
      const asking = get(new URL('/events', page.url));
      const [events] = (await once(asking, 'response')) as [IncomingMessage];
      assert.equal(events.headers['content-type'], 'text/event-stream');
      let heard = '';
      for await (const chunk of events) {
        heard += String(chunk);
        if (/look-3/.test(heard)) break;
      }
      assert.equal(heard.match(/"id":"title"/g)!.length, looks); // it changed each time,
      assert.equal(heard.match(/"id":"flow"/g)!.length, 1); // and this did not
      for (const event of heard.split('\n\n').slice(1, -1)) {
        assert.match(event, /^event: part\ndata: \{"id":"[\w-]+","markup":".*"\}$/); // in one line
      }
    } finally {
      await page[Symbol.asyncDispose]();
    }
  });

  it('the dashboard begins no look at the run before the last one has ended, however long it takes', async () => {
    let [running, most, ended] = [0, 0, 0];
    await using page = await serve(async () => {
      most = Math.max(most, ++running);
      await sleep(50); // five times the interval
      running--;
      ended++;
      return runView();
    });
    const asking = get(new URL('/events', page.url));
    await once(asking, 'response');
    await until(() => ended >= 3);
    asking.destroy();
    assert.equal(most, 1);
  });

  it('the dashboard sends the final state to open pages', async () => {
    const page = await serve();
    const asking = get(new URL('/events', page.url));
    const [events] = (await once(asking, 'response')) as [IncomingMessage];
    const heard = text(events);
    await page[Symbol.asyncDispose]();
    assert.match(await heard, /event: over\ndata: \n\n$/);
  });
});
