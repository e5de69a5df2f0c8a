import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import type { PolicyAdapter } from '../../shared/broker/policy-store.js';
import { UserError } from '../../shared/base/errors.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';
import type { FoundRun } from '../existing-run/find-run.js';
import type { FoundVersion } from './find-version.js';

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
  if (sampler !== 'onnx' || samplerPath === undefined || adapter === undefined) return undefined;
  return { samplerPath, adapter };
}

/** The version's weights by a backend, which has what was saved. */
export async function weightsFromBackend(
  client: TinkerClient,
  { sampler }: FoundRun,
  { config, version, samplerPath, statePath }: FoundVersion,
): Promise<OpenedWeights & AsyncDisposable> {
  let path = samplerPath;
  let isOurs = false;
  if (path === undefined) {
    if (statePath === undefined) throw new Error(`version ${version} has no weights`);
    const { rank, seed } = config.lora;
    const run = await client.restoreLoraModel({
      baseModel: config.model.name,
      rank,
      seed,
      statePath,
    });
    path = await run.saveWeightsForSampler(`eval-${version}`);
    isOurs = true;
  }
  const weights = path;
  const dispose = async () => {
    if (isOurs) await client.deleteCheckpoint(weights);
  };
  if (sampler === 'tinker') {
    const samplingSessionId = await client.createSamplingSession(weights);
    return { samplerPath: weights, samplingSessionId, [Symbol.asyncDispose]: dispose };
  }
  const { adapter: bytes, rank, alpha } = await client.downloadAdapter(weights);
  const adapter = { bytes, rank, alpha };
  return { samplerPath: weights, adapter, [Symbol.asyncDispose]: dispose };
}

/**
 * Copies the one checkpoint that is to be measured, so that a backend of our own can serve it: the
 * run may still be training, and its folder is nobody else's to write in.
 */
export async function copyCheckpoint(
  checkpoints: string,
  to: string,
  { version, samplerPath, statePath }: FoundVersion,
): Promise<void> {
  const { runId, kind, name } = parseTinkerPath((samplerPath ?? statePath)!);
  const part = join(runId, kind, name);
  try {
    await cp(join(checkpoints, part), join(to, part), { recursive: true });
  } catch (cause) {
    throw new UserError(
      `the weights of version ${version} are not in ${join(checkpoints, part)} any more`,
      { cause },
    );
  }
}
