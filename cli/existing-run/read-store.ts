import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Broker } from '../../shared/broker/broker.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { UserError } from '../../shared/base/errors.js';
import { FolderInUse, lockFolder } from '../../shared/service/folder-lock.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { graceMs } from '../processes/members.js';
import type { NatsBinary } from '../nats-server/binary.js';
import { accessWith } from '../nats-server/keys.js';
import { startNats } from '../nats-server/start.js';
import { type FoundRun, type RunningStore, runningStore } from './find-run.js';

export interface ReadStoreOptions {
  readonly found: FoundRun;
  /** Called only if a server must be started. */
  readonly natsBinary: () => Promise<NatsBinary>;
  /** The command that reads: `status`. */
  readonly command: string;
  readonly deadlineMs: number;
  readonly logFolder: string;
  readonly signal: AbortSignal;
  readonly hurry: AbortSignal;
  readonly log: Logger;
  /** What `read` may do there; by default nothing but read. */
  readonly role?: 'observer' | 'operator';
  /** How long to wait for the server of a run whose folder is in use: it may be starting or ending. */
  readonly serverMs?: number;
}

/**
 * Hands the run's NATS to `read`: the server that it has now, or one that is started on its store for
 * as long as `read` takes. Meanwhile the run's folder is locked, so that no second server uses the store.
 *
 * @param read its `isStopped` says whether the server was started for it: then no process of the run is up.
 * @throws {UserError} if the store is gone, its server does not answer, or another process uses the folder.
 */
export async function readStore<T>(
  options: ReadStoreOptions,
  read: (broker: Broker, isStopped: boolean) => Promise<T>,
): Promise<T> {
  const { found, natsBinary, command, deadlineMs, logFolder, signal, hurry, log } = options;
  const { role = 'observer' } = options;
  const { run, folder } = found;
  const identity = { role };
  const readAt = async ({ natsUrl, keyFolder }: RunningStore, isStopped: boolean): Promise<T> => {
    const access = accessWith(keyFolder, identity);
    await using broker = await connectBroker({
      natsUrl,
      ...access,
      run,
      client: command,
      identity,
      log,
      signal,
    });
    return await read(broker, isStopped);
  };
  const place = await serverOrLock(options);
  if ('natsUrl' in place) return await readAt(place, false);

  using _lock = place;
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
    return await readAt({ natsUrl: server.url, keyFolder: server.keyFolder }, true);
  } finally {
    await server.process.stop(graceMs, hurry);
  }
}

const lookEveryMs = 250;

/** The server that holds the run, or the lock of its folder once no other process uses it. */
async function serverOrLock({
  found,
  command,
  serverMs = 10_000,
  signal,
}: ReadStoreOptions): Promise<RunningStore | Disposable> {
  const { run, folder } = found;
  const deadline = performance.now() + serverMs;
  for (;;) {
    const server = await runningStore(found);
    if (server !== undefined) return server;
    try {
      // A run without a named server has a folder.
      return await lockFolder(folder!.path, `offbeat ${command}`, { isReader: true, signal });
    } catch (caught) {
      if (!(caught instanceof FolderInUse) || caught.isReader) throw caught;
      if (performance.now() > deadline) {
        throw new UserError(
          `the NATS server of run ${run} does not answer here; try again, or run this command where the run is: ${caught.message}`,
          { cause: caught },
        );
      }
    }
    await sleep(lookEveryMs, undefined, { signal });
  }
}
