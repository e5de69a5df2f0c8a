import { UserError } from '../shared/base/errors.js';
import { unusableFolder } from '../shared/base/make-folder.js';
import { markHandled, type TaskScope } from '../shared/base/task-scope.js';
import { readModelDirectory } from '../shared/model/model-directory.js';
import { FolderInUse, lockFolder } from '../shared/service/folder-lock.js';
import { type RoomWait, writeWhenRoom } from '../shared/service/telemetry/disk-room.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import type { ApiKeys } from './http-api.js';
import { Archives } from './archives.js';
import { deleteExpired } from './checkpoint-expiry.js';
import { checkpointRoutes } from './checkpoint-routes.js';
import { CheckpointStore } from './checkpoint-store.js';
import { futureRoutes } from './future-routes.js';
import { bytesOf, type OperationResult } from './operation-result.js';
import { FutureStore } from './futures.js';
import { serveApi } from './http-server.js';
import { SamplingSessions } from './sampling-sessions.js';
import { samplingRoutes, sessionRoutes } from './session-routes.js';
import type { SamplingCalls } from './sampling-worker.js';
import type { ServedModel } from './served-model.js';
import { Sessions } from './sessions.js';
import { TrainingOperations } from './training-operations.js';
import { trainingRoutes } from './training-routes.js';
import { TrainingRuns } from './training-runs.js';
import type { TrainingCalls } from './training-worker.js';
import { WorkerCalls } from '../shared/service/worker-calls.js';

interface LocalBackendOptions extends ApiKeys {
  readonly host: string;
  readonly port: number; // 0 picks a free one
  readonly modelDir: string;
  readonly modelName: string;
  readonly loraAlpha?: number | undefined; // see ServedModel
  readonly checkpointDir: string;
  readonly threads: number;
  readonly log: Logger;
  /**
   * Its end aborts waits for free disk space. It fails when a worker thread dies, since the process cannot
   * continue.
   */
  readonly scope?: TaskScope;
  /** How long a poll waits for a result, in ms; SDK clients give up after 45 s. */
  readonly pollMs?: number;
  /** A monotonic clock in ms, which decides when a client counts as gone; replaced in tests. */
  readonly now?: () => number;
  /** The interval between checks for such clients and for expired checkpoints, in ms. */
  readonly unloadEveryMs?: number;
  /** How long an operation waits for missing earlier ones, in ms. */
  readonly gapWaitMs?: number;
  /** How long to wait for another backend that uses the checkpoints, in ms. */
  readonly lockPatienceMs?: number;
}

export interface LocalBackend extends AsyncDisposable {
  readonly url: string;
  /** Resolves once the training model is loaded; requests wait until then. */
  readonly loaded: Promise<void>;
}

/**
 * Starts the embedded Tinker server: HTTP on this thread, training and sampling on one thread each,
 * so that requests are answered while the model computes.
 *
 * @throws {UserError} on an unusable model directory, a checkpoint directory that another backend uses or an address
 * that cannot be bound.
 */
export async function startLocalBackend(options: LocalBackendOptions): Promise<LocalBackend> {
  const { modelDir, modelName: name, loraAlpha, checkpointDir, log, scope } = options;
  const model = { name, directory: await readModelDirectory(modelDir), loraAlpha };
  const signal = scope?.signal ?? new AbortController().signal;
  const lock = await lockCheckpoints(checkpointDir, { log, signal }, options.lockPatienceMs);
  try {
    const store = await CheckpointStore.open(checkpointDir, log, signal);
    log.info({ checkpoints: store.list().length, dir: checkpointDir }, 'checkpoints found');
    const backend = await serveModel(model, store, options);
    return {
      ...backend,
      async [Symbol.asyncDispose]() {
        await backend[Symbol.asyncDispose]();
        lock[Symbol.dispose]();
      },
    };
  } catch (error) {
    lock[Symbol.dispose]();
    throw error;
  }
}

/**
 * Locks the folder of the checkpoints: at its start a backend removes what a crashed one left there half-written, which
 * would be the saves of one that runs.
 *
 * @param patienceMs how long to wait for another backend: that of a killed launcher takes some seconds to end.
 * @throws {UserError} if another backend uses the folder, or it cannot be written.
 */
async function lockCheckpoints(
  folder: string,
  wait: RoomWait,
  patienceMs = 15_000,
): Promise<Disposable> {
  const { log, signal } = wait;
  const onWait = (reason: string) => {
    log.warn({ reason, seconds: patienceMs / 1_000 }, 'waiting for another backend to end');
  };
  const patience = { holderMs: patienceMs, watchMs: patienceMs, onWait, signal };
  try {
    return await writeWhenRoom('checkpoints', wait, () =>
      lockFolder(folder, 'offbeat local-backend', patience),
    );
  } catch (caught) {
    if (signal.aborted) throw caught;
    if (!(caught instanceof FolderInUse)) throw unusableFolder(folder, '--checkpoint-dir', caught);
    const message = `${caught.message}; a second backend needs another --checkpoint-dir`;
    throw new UserError(message, { cause: caught });
  }
}

/** Starts the threads and the HTTP server. */
async function serveModel(
  model: ServedModel,
  store: CheckpointStore,
  options: LocalBackendOptions,
): Promise<LocalBackend> {
  const { threads, log, scope } = options;
  const { directory } = model;
  const sessions = new Sessions(options.now);
  const futures = new FutureStore<OperationResult>({ bytesOf });
  const trainer = new WorkerCalls<TrainingCalls>(new URL('./training-worker.js', import.meta.url));
  const sampler = lazily(() => {
    const worker = new WorkerCalls<SamplingCalls>(new URL('./sampling-worker.js', import.meta.url));
    void scope?.track(worker.died);
    // Later calls wait for the load. If it fails, each of them tries again, and fails with the reason.
    worker.call('load', { directory, threads }).catch((err: unknown) => {
      log.error({ err }, 'sampling model not loaded');
    });
    return worker;
  });
  void scope?.track(trainer.died);

  const samplers = new SamplingSessions(model, sessions, store, futures, sampler.get, trainer);
  const startedAt = Date.now();
  const gapWaitMs = options.gapWaitMs ?? 10_000;
  const runs = new TrainingRuns(model, sessions, trainer, futures, gapWaitMs, log);
  const operations = new TrainingOperations(model, runs, trainer, store, samplers);
  const unloading = setInterval(() => {
    runs.unloadAbandoned();
    deleteExpired(store, samplers, { now: Date.now(), startedAt }).catch((err: unknown) => {
      log.error({ err }, 'expired checkpoint not deleted');
    });
  }, options.unloadEveryMs ?? 60_000).unref();
  const stopWorkers = async (): Promise<void> => {
    clearInterval(unloading);
    await Promise.all([trainer[Symbol.asyncDispose](), sampler.current()?.[Symbol.asyncDispose]()]);
  };
  try {
    const server = await serveApi({
      ...options,
      routes: [
        ...sessionRoutes(model, sessions, (id) => {
          const ended = sessions.finish(id);
          if (ended === undefined) return;
          runs.unloadOf(ended, 'finished');
          samplers.closeOf(ended);
        }),
        ...trainingRoutes(model, runs, operations),
        ...samplingRoutes(model, samplers),
        ...futureRoutes(futures, samplers, options.pollMs ?? 30_000),
        ...checkpointRoutes(store, runs, samplers, new Archives()),
      ],
    });
    const loaded = markHandled(trainer.call('load', { directory, threads }));
    const host = options.host.includes(':') ? `[${options.host}]` : options.host;
    return {
      url: `http://${host}:${server.port}`,
      loaded,
      async [Symbol.asyncDispose]() {
        await server[Symbol.asyncDispose]();
        await stopWorkers();
      },
    };
  } catch (error) {
    await stopWorkers();
    throw error;
  }
}

/** Creates a value on first use. */
function lazily<T>(create: () => T): { get: () => T; current: () => T | undefined } {
  let value: T | undefined;
  return { get: () => (value ??= create()), current: () => value };
}
