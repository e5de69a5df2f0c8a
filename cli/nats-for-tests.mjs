import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/**
 * Lets everything that this process starts find a nats-server: OFFBEAT_NATS_SERVER names it afterwards. What
 * has to be fetched is announced on standard error.
 *
 * @param {string} root of the checkout, compiled.
 * @returns {Promise<string | undefined>} why there is none.
 */
export async function provideNatsServer(root) {
  const module = join(root, 'dist/cli/nats-server/ensure.js');
  const { ensureNatsServer } = await import(pathToFileURL(module).href);
  try {
    const report = (line) => process.stderr.write(`${line}\n`);
    const { path } = await ensureNatsServer({ env: process.env, report });
    process.env.OFFBEAT_NATS_SERVER = path;
    return undefined;
  } catch (error) {
    return error.message;
  }
}
