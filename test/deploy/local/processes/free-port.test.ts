import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { describe, it } from 'node:test';
import { freePort } from '../../../../deploy/local/processes/free-port.js';

describe('a free port', () => {
  it('is another one at each call, can be listened on, and is of none for outgoing connections', async () => {
    const ports = await Promise.all(Array.from({ length: 50 }, freePort));
    assert.equal(new Set(ports).size, ports.length);
    for (const port of ports) {
      assert(port >= 1_024 && port < 32_768, String(port));
      const server = createServer().listen(port, '127.0.0.1');
      await once(server, 'listening');
      server.close();
    }
  });
});
