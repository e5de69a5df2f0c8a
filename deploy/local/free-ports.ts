import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';

/**
 * Different ports of loopback that nothing listens on now. All are held until the last is found, so
 * that the system does not hand out one twice.
 */
export async function freePorts(count: number): Promise<number[]> {
  const holders = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(holders.map((holder) => once(holder, 'listening')));
  const ports = holders.map((holder) => (holder.address() as AddressInfo).port);
  await Promise.all(holders.map((holder) => new Promise((resolve) => holder.close(resolve))));
  return ports;
}
