import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Below what systems take for outgoing connections (Linux from 32768, macOS and Windows from 49152): a
 * port of those may be gone before the service that it is for listens.
 */
const [first, end] = [20_000, 32_000];

/**
 * Where this process looks next. A port that was given away is perhaps not listened on yet, so none is given
 * twice; and processes that look at the same moment begin at places of their own.
 */
let next = placeOf(process.pid);

/** Where in the range a process begins: apart from those that were started about when it was. */
export function placeOf(pid: number): number {
  return (pid * 64) % (end - first);
}

/**
 * A port of loopback that nothing listens on now, another one at each call.
 *
 * @throws if none is found; thousands of services would have to run here.
 */
export async function freePort(): Promise<number> {
  for (let attempt = first; attempt < end; attempt++) {
    const port = first + next;
    next = (next + 1) % (end - first);
    if (await isFree(port)) return port;
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
