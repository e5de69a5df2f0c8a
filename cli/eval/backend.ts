import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { UserError } from '../../shared/base/errors.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import type { Fleet } from '../processes/fleet.js';
import { freePort } from '../processes/free-port.js';
import { backendMember } from '../processes/members.js';
import type { EvalConfig } from './eval-config.js';
import type { FoundRun } from '../existing-run/find-run.js';
import type { MeasureOptions } from './measure-options.js';
import { copyCheckpoint, weightsFromStore } from './open-weights.js';

export interface BackendPlace {
  readonly url: string;
  readonly apiKey: string;
}

/** Where the run's backend is, or one of our own will be. */
export async function backendPlace(found: FoundRun, { apiKey }: EvalConfig): Promise<BackendPlace> {
  if (found.backendUrl === undefined) {
    const url = `http://127.0.0.1:${await freePort()}`;
    return { url, apiKey: `tml-${randomBytes(16).toString('hex')}` };
  }
  if (apiKey === undefined) {
    throw new UserError(
      `the run ${found.run} trains by ${found.backendUrl}: give its key with --api-key, or as TINKER_API_KEY`,
    );
  }
  return { url: found.backendUrl, apiKey };
}

/** A connection to the run's backend, or to one of our own on its checkpoint; undefined: not needed. */
export async function openBackend(
  { found, version, folder, request, log }: MeasureOptions,
  fleet: Fleet,
  backend: BackendPlace,
  signal: AbortSignal,
): Promise<TinkerClient | undefined> {
  if (weightsFromStore(found, version) !== undefined) return undefined;
  if (found.backendUrl === undefined) {
    if (found.folder === undefined) {
      throw new UserError(
        `version ${version.version} of run ${found.run} must be asked of its backend; name it with --backend-url`,
      );
    }
    const checkpointFolder = join(folder, 'checkpoints');
    await copyCheckpoint(found.folder.checkpoints, checkpointFolder, version);
    const member = backendMember(
      { ...found, modelName: version.config.model.name },
      { backend, checkpointFolder },
    );
    void fleet.start(member);
    await fleet.ready([member.name], request.readySeconds * 1_000, signal);
  }
  return await TinkerClient.connect({ baseUrl: backend.url, apiKey: backend.apiKey, log, signal });
}
