import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { describe, it } from 'node:test';
import { freePort, placeOf } from '../../../cli/processes/free-port.js';

describe('a free port', () => {
  it('a free port is new at each call, can be listened on, and is outside the range of outgoing connections', async () => {
    const ports = await Promise.all(Array.from({ length: 50 }, freePort));
    assert.equal(new Set(ports).size, ports.length);
    for (const port of ports) {
      assert(port >= 1_024 && port < 32_768, String(port));
      const server = createServer().listen(port, '127.0.0.1');
      await once(server, 'listening');
      server.close();
    }
  });

  it('a free port is searched from a different place by each of the processes that start together', () => {
    const places = Array.from({ length: 100 }, (_, i) => placeOf(31_337 + i)).sort((a, b) => a - b);
    for (const [i, place] of places.slice(1).entries()) assert(place - places[i]! >= 64);
  });
});
