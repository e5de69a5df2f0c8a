import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { startLocalBackend } from '../../local-backend/local-backend.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { LossName } from '../../shared/rl/losses.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';
import { silent } from '../support/log.js';
import type { Recorded } from './witness.js';
import { apiKey, modelName } from './world.js';

/** The saved files of adapter and optimizer. */
const files = ['adapter/adapter_model.safetensors', 'optimizer/optimizer.safetensors'];

/**
 * Trains the same batches in one go, without restart, save or restore, on a separate backend.
 *
 * @param folder for its checkpoints.
 * @returns the saved bytes of the result.
 */
export async function rebuild(
  history: readonly Recorded[],
  lora: { readonly rank: number; readonly seed: number },
  folder: string,
): Promise<Buffer[]> {
  await using backend = await startLocalBackend({
    ...{ host: '127.0.0.1', port: 0, apiKey, modelName, modelDir: embeddedModelPath },
    ...{ checkpointDir: folder, threads: 1, log: silent },
  });
  const { signal } = new AbortController();
  await using client = await TinkerClient.connect({
    ...{ baseUrl: backend.url, apiKey, log: silent, signal },
  });
  const run = await client.createLoraModel({ baseModel: modelName, ...lora });
  for (const { pass, adam } of history) {
    if (pass !== undefined) {
      await run.forwardBackward(pass.data, LossName.parse(pass.loss), pass.config);
    }
    if (adam !== undefined) await run.optimStep(adam);
  }
  return await saved(folder, await run.saveState('whole'));
}

/** The bytes of a state that a local backend keeps in `folder`. */
export async function saved(folder: string, path: string): Promise<Buffer[]> {
  const { runId, name } = parseTinkerPath(path);
  return Promise.all(files.map((file) => readFile(join(folder, runId, 'weights', name, file))));
}
