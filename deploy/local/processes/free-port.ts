import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Below what systems take for outgoing connections (Linux from 32768, macOS and Windows from 49152): a
 * port of those may be gone before the service that it is for listens.
 */
const [first, end] = [20_000, 32_000];

/** Given away, though perhaps not listened on yet: a second service must not get it meanwhile. */
const givenAway = new Set<number>();

/**
 * A port of loopback that nothing listens on now, another one at each call.
 *
 * @throws if none is found; thousands of services would have to run here.
 */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 1_000; attempt++) {
    const port = randomInt(first, end);
    if (givenAway.has(port) || !(await isFree(port))) continue;
    givenAway.add(port);
    return port;
  }
  throw new Error(`no free port of 127.0.0.1 was found between ${first} and ${end}`);
}

async function isFree(port: number): Promise<boolean> {
  const holder = createServer().listen(port, '127.0.0.1');
  try {
    await once(holder, 'listening');
  } catch {
    return false;
  }
  await new Promise((resolve) => holder.close(resolve));
  return true;
}
