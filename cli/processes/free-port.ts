import { once } from 'node:events';
import { createServer } from 'node:net';
import { cannotServe } from '../../shared/service/http-server.js';

/**
 * Below the range of outgoing connections (Linux from 32768, macOS and Windows from 49152): a port of that
 * range may be taken before its service listens.
 */
const [first, end] = [20_000, 32_000];

/**
 * The next port to try. A returned port may not be listened on yet, so none is returned twice; and
 * processes that search at the same moment begin at different ports.
 */
let next = placeOf(process.pid);

/** Where in the range a process begins: far from processes that were started at about the same time. */
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
    if (await canListen(port)) return port;
  }
  throw new Error(`no free port of 127.0.0.1 was found between ${first} and ${end}`);
}

/** @throws {UserError} if the dashboard cannot be served on this port of loopback; 0 is any port. */
export async function checkDashboardPort(port: number): Promise<void> {
  try {
    await holdOnce(port);
  } catch (caught) {
    throw cannotServe(
      { name: 'the dashboard', portFlag: '--dashboard-port', host: '127.0.0.1', port },
      caught,
    );
  }
}

/** Whether a service can listen on a port of loopback now. */
export async function canListen(port: number): Promise<boolean> {
  return await holdOnce(port).then(
    () => true,
    () => false,
  );
}

/** Listens on a port of loopback for a moment. */
async function holdOnce(port: number): Promise<void> {
  const holder = createServer().listen(port, '127.0.0.1');
  await once(holder, 'listening');
  await new Promise((resolve) => holder.close(resolve));
}
