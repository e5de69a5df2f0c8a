import { setTimeout as sleep } from 'node:timers/promises';
import { connectBroker } from '../../../shared/broker/connect.js';
import type { Broker } from '../../../shared/broker/broker.js';
import { errorText, UserError } from '../../../shared/base/errors.js';
import { isInUse } from '../../../shared/service/folder-lock.js';
import type { Logger } from '../../../shared/service/telemetry/logger.js';
import { type FoundRun, type RunningStore, runningStore } from '../../existing-run/find-run.js';
import { accessWith } from '../../nats-server/keys.js';
import type { RunFolder } from '../../run-folder.js';

/** The source of a run's data: its NATS server while that is up, else its folder. */
export type OpenRun = AsyncDisposable &
  (
    | { readonly kind: 'live'; readonly broker: Broker }
    | { readonly kind: 'folder'; readonly folder: RunFolder }
  );

/**
 * Opens a run read-only.
 *
 * @param report receives the reason when the folder replaces an expected server.
 * @throws {UserError} if the run is neither here nor on the server.
 */
export async function openRun(
  found: FoundRun,
  { log, signal, report }: { log: Logger; signal: AbortSignal; report: (line: string) => void },
): Promise<OpenRun> {
  const { run, folder } = found;
  const ofFolder = (kept: RunFolder): OpenRun => ({
    kind: 'folder',
    folder: kept,
    [Symbol.asyncDispose]: () => Promise.resolve(),
  });
  const store = await comingStore(found, signal);
  if (store === undefined) return ofFolder(folder!); // a run without a named server has a folder
  try {
    const identity = { role: 'observer' } as const;
    const broker = await connectBroker({
      natsUrl: store.natsUrl,
      ...accessWith(store.keyFolder, identity),
      run,
      client: 'dashboard',
      identity,
      log,
      signal,
    });
    if (await broker.isThere()) {
      return { kind: 'live', broker, [Symbol.asyncDispose]: () => broker[Symbol.asyncDispose]() };
    }
    await broker[Symbol.asyncDispose]();
    throw new UserError(`the NATS server knows no run ${run}`);
  } catch (caught) {
    if (folder === undefined || signal.aborted) throw caught;
    report(`${errorText(caught)}; showing the folder of the run instead`);
    return ofFolder(folder);
  }
}

const startingMs = 10_000;
const lookEveryMs = 250;

/** The server that holds the run, which is waited for while a process uses the folder: it may be starting. */
async function comingStore(
  found: FoundRun,
  signal: AbortSignal,
): Promise<RunningStore | undefined> {
  const deadline = performance.now() + startingMs;
  for (;;) {
    const store = await runningStore(found);
    const isUsed = found.folder !== undefined && isInUse(found.folder.path);
    if (store !== undefined || !isUsed || performance.now() > deadline) return store;
    await sleep(lookEveryMs, undefined, { signal });
  }
}
