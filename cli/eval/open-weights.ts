import { existsSync } from 'node:fs';
import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import type { PolicyAdapter } from '../../shared/broker/policy-store.js';
import { errorText, UserError } from '../../shared/base/errors.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import { AdapterOutOfReach } from '../../shared/tinker/errors.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';
import type { FoundRun } from '../existing-run/find-run.js';
import type { FoundVersion } from './find-version.js';
import type { Fleet } from '../processes/fleet.js';
import { readyMs } from '../up/up-config.js';
import { backendMember, ownBackendPlace, type BackendPlace } from '../processes/members.js';
import type { EvalConfig } from './eval-config.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';

/** What actors need to sample with a version: an adapter, or a sampling session of the backend. */
export interface OpenedWeights {
  readonly samplerPath: string;
  readonly adapter?: PolicyAdapter;
  readonly samplingSessionId?: string;
}

/** The version's weights as its store holds them; undefined if the backend must be asked. */
export function weightsFromStore(
  { sampler }: FoundRun,
  { samplerPath, adapter }: FoundVersion,
): OpenedWeights | undefined {
  if (sampler === 'tinker' || samplerPath === undefined || adapter === undefined) return undefined;
  return { samplerPath, adapter };
}

/**
 * The version's weights by a backend, which has what was saved.
 *
 * @param warn receives a line if what was saved for this alone stays on the server.
 */
export async function weightsFromBackend(
  client: Pick<
    TinkerClient,
    | 'createLoraModel'
    | 'createSamplingSession'
    | 'downloadAdapter'
    | 'downloadExternal'
    | 'deleteCheckpoint'
  >,
  { sampler }: Pick<FoundRun, 'sampler'>,
  { config, version, samplerPath, statePath, files }: FoundVersion,
  warn: (line: string) => void,
): Promise<OpenedWeights & AsyncDisposable> {
  let weights = samplerPath;
  let loaded: TrainingRun | undefined; // for this alone
  const dispose = async () => {
    if (loaded === undefined) return;
    // The measurement is over then, and its result must not be lost.
    if (weights !== undefined) {
      await client.deleteCheckpoint(weights).catch((caught: unknown) => {
        warn(`${weights} stays on the backend: it could not be deleted (${errorText(caught)})`);
      });
    }
    // A server may have few places for adapters, and the learner may need one.
    await loaded.unload().catch((caught: unknown) => {
      warn(`an adapter stays loaded on the backend for a while (${errorText(caught)})`);
    });
  };
  try {
    if (weights === undefined) {
      loaded = await client.createLoraModel({ baseModel: config.model.name, ...config.lora });
      if (statePath !== undefined) await loaded.loadState(statePath, { optimizer: false });
      weights = await loaded.saveWeightsForSampler(`eval-${version}`);
    }
    if (sampler === 'tinker') {
      const samplingSessionId = await client.createSamplingSession(weights);
      return { samplerPath: weights, samplingSessionId, [Symbol.asyncDispose]: dispose };
    }
    const {
      adapter: bytes,
      rank,
      alpha,
    } = await client.downloadAdapter(weights).catch((caught: unknown) => {
      if (!(caught instanceof AdapterOutOfReach) || files === undefined) throw caught;
      return client.downloadExternal(files);
    });
    const adapter = { bytes, rank, alpha };
    return { samplerPath: weights, adapter, [Symbol.asyncDispose]: dispose };
  } catch (caught) {
    await dispose(); // the caller has nothing to dispose of
    throw caught;
  }
}

/**
 * Copies the one checkpoint that is to be measured, so that a backend of our own can serve it: the
 * run may still be training, and only its own processes may write to its folder.
 */
async function copyCheckpoint(
  checkpoints: string,
  to: string,
  { version, samplerPath, statePath }: FoundVersion,
): Promise<void> {
  const path = samplerPath ?? statePath;
  if (path === undefined) return;
  const { runId, kind, name } = parseTinkerPath(path);
  const part = join(runId, kind, name);
  try {
    await cp(join(checkpoints, part), join(to, part), { recursive: true });
  } catch (cause) {
    const place = join(checkpoints, part);
    const text = existsSync(place)
      ? `the weights of version ${version} cannot be copied from ${place} to ${to} (${errorText(cause)})`
      : `the weights of version ${version} are no longer in ${place}`;
    throw new UserError(text, { cause });
  }
}

/** Where the run's backend is, or one of our own will be. */
export async function backendPlace(found: FoundRun, { apiKey }: EvalConfig): Promise<BackendPlace> {
  if (found.backendUrl === undefined) return await ownBackendPlace();
  if (apiKey === undefined) {
    throw new UserError(
      `the run ${found.run} trains on ${found.backendUrl}: give its key with --api-key, or as TINKER_API_KEY`,
    );
  }
  return { url: found.backendUrl, apiKey };
}

/** The version to restore, and the folder of a backend of our own. */
export interface BackendOptions {
  readonly request: EvalConfig;
  readonly found: FoundRun;
  readonly version: FoundVersion;
  readonly folder: string; // logs, streams and checkpoints of this evaluation only
  readonly log: Logger;
}

/** A connection to the run's backend, or to one of our own on its checkpoint; undefined: not needed. */
export async function openBackend(
  { found, version, folder, request, log }: BackendOptions,
  fleet: Fleet,
  backend: BackendPlace,
  signal: AbortSignal,
): Promise<TinkerClient | undefined> {
  if (weightsFromStore(found, version) !== undefined) return undefined;
  if (found.backendUrl === undefined) {
    if (found.folder === undefined) {
      throw new UserError(
        `only the backend has the weights of version ${version.version} of run ${found.run}; name it with --backend-url`,
      );
    }
    const checkpointFolder = join(folder, 'checkpoints');
    await copyCheckpoint(found.folder.checkpoints, checkpointFolder, version);
    const member = backendMember(
      { ...found, modelName: version.config.model.name },
      { backend, checkpointFolder },
    );
    void fleet.start(member);
    await fleet.ready([member.name], readyMs(request), signal);
  }
  return await TinkerClient.connect({ baseUrl: backend.url, apiKey: backend.apiKey, log, signal });
}
