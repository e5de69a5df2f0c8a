import { join } from 'node:path';
import { withDebianPackage, type DebianTools } from '../debian-package.js';
import type { NatsBinary } from './binary.js';
import { storeInCache } from './cache.js';

/**
 * Puts the server of the distribution's nats-server package into the cache.
 *
 * @returns a sentence saying why not, when the package cannot be had.
 */
export async function takeDebianPackage(
  folder: string,
  tools: DebianTools,
  signal?: AbortSignal,
): Promise<NatsBinary | string> {
  const store = (unpacked: string) =>
    storeInCache(folder, join(unpacked, 'usr', 'sbin', 'nats-server'));
  return await withDebianPackage('nats-server', folder, tools, store, signal);
}
