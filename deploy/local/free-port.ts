import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';

/** Given away, though perhaps not listened on yet: a second service must not get it meanwhile. */
const givenAway = new Set<number>();

/** A port of loopback that nothing listens on now, another one at each call. */
export async function freePort(): Promise<number> {
  for (;;) {
    const holder = createServer().listen(0, '127.0.0.1');
    await once(holder, 'listening');
    const { port } = holder.address() as AddressInfo;
    await new Promise((resolve) => holder.close(resolve));
    if (givenAway.has(port)) continue;
    givenAway.add(port);
    return port;
  }
}
