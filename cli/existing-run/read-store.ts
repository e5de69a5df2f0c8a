import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Broker } from '../../shared/broker/broker.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { UserError } from '../../shared/base/errors.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { graceMs } from '../processes/members.js';
import type { NatsBinary } from '../nats-server/binary.js';
import { accessWith } from '../nats-server/keys.js';
import { startNats } from '../nats-server/start.js';
import { type FoundRun, runningStore } from './find-run.js';

export interface ReadStoreOptions {
  readonly found: FoundRun;
  /** Called only if a server must be started. */
  readonly natsBinary: () => Promise<NatsBinary>;
  readonly deadlineMs: number;
  readonly logFolder: string;
  readonly signal: AbortSignal;
  readonly hurry: AbortSignal;
  readonly log: Logger;
  /** What `read` may do there; by default nothing but read. */
  readonly role?: 'observer' | 'operator';
}

/**
 * Hands the run's NATS to `read`: the server that it has now, or one that is started on its store for
 * as long as `read` takes.
 *
 * @throws {UserError} if the store is gone or its server does not answer.
 */
export async function readStore<T>(
  options: ReadStoreOptions,
  read: (broker: Broker) => Promise<T>,
): Promise<T> {
  const { found, natsBinary, deadlineMs, logFolder, signal, hurry, log } = options;
  const { role = 'observer' } = options;
  const { run, folder } = found;
  const identity = { role };
  const readAt = async (natsUrl: string, keyFolder: string | undefined): Promise<T> => {
    const access = accessWith(keyFolder, identity);
    await using broker = await connectBroker({
      natsUrl,
      ...access,
      run,
      client: 'eval',
      identity,
      log,
      signal,
    });
    return await read(broker);
  };
  const up = await runningStore(found);
  if (up !== undefined) return await readAt(up.natsUrl, up.keyFolder);

  if (folder === undefined || !existsSync(join(folder.nats, 'store'))) {
    throw new UserError(
      `the NATS store of run ${run} is no longer in ${folder?.nats ?? 'its folder'}; name a server that holds the run with --nats-url`,
    );
  }
  const logPath = join(logFolder, 'nats-server-of-the-run.log');
  const server = await startNats((await natsBinary()).path, folder.nats, logPath, {
    run,
    identities: [identity],
    deadlineMs,
    signal,
  });
  try {
    return await readAt(server.url, server.keyFolder);
  } finally {
    await server.process.stop(graceMs, hurry);
  }
}
