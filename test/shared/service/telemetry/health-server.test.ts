import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { serveHealth } from '../../../../shared/service/telemetry/health-server.js';
import { sendSlowly } from '../../../support/slow-client.js';

describe('the health server', () => {
  it('the health server answers three paths, and only GET and HEAD', async () => {
    await using health = await serveHealth('127.0.0.1', 0, () => 'waiting');
    const ask = (path: string, method = 'GET') =>
      fetch(`http://127.0.0.1:${health.port}${path}`, { method });
    assert.equal((await ask('/healthz')).status, 200);
    const ready = await ask('/readyz');
    assert.deepEqual([ready.status, await ready.text()], [503, 'waiting\n']);
    assert.equal((await ask('/secrets')).status, 404);
    for (const method of ['POST', 'PUT', 'DELETE']) {
      assert.equal((await ask('/metrics', method)).status, 405);
    }
  });

  it('the health server exposes in /metrics neither the environment nor the command line', async () => {
    process.env['LEARNER_API_KEY'] = 'tml-hunter2';
    await using health = await serveHealth('127.0.0.1', 0, () => undefined);
    const text = await (await fetch(`http://127.0.0.1:${health.port}/metrics`)).text();
    delete process.env['LEARNER_API_KEY'];
    assert.match(text, /process_cpu_seconds_total/);
    assert.doesNotMatch(text, /hunter2/);
    assert(!text.includes(process.cwd()));
  });

  it(
    'the health server closes a connection whose headers or body never end',
    { timeout: 60_000 },
    async () => {
      await using health = await serveHealth('127.0.0.1', 0, () => undefined, 200);
      const begin = 'GET /healthz HTTP/1.1\r\nhost: x\r\n';
      assert.match(await sendSlowly(health.port, begin, 'x-more: 1\r\n'), /^HTTP\/1\.1 408 /);
      const body = await sendSlowly(health.port, `${begin}content-length: 1000000\r\n\r\n`, 'x');
      assert.match(body, /^HTTP\/1\.1 (200|408) /);
    },
  );

  it('the health server reports a failed readiness check without its reason', async () => {
    await using health = await serveHealth('127.0.0.1', 0, () => {
      throw new Error('hunter2');
    });
    const response = await fetch(`http://127.0.0.1:${health.port}/readyz`);
    assert.equal(response.status, 500);
    assert.doesNotMatch(await response.text(), /hunter2|at /);
  });
});
