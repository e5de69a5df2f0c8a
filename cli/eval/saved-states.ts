import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { TinkerClient } from '../../shared/tinker/client.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';
import { stepOfState } from '../../shared/wire/checkpoint-names.js';
import type { SavedState } from '../../shared/wire/ledger.js';

/** The states in a folder of the local backend, of all training runs in the run's sessions. */
export async function statesInFolder(checkpoints: string): Promise<SavedState[]> {
  const found: SavedState[] = [];
  for (const runId of await namesIn(checkpoints)) {
    for (const name of await namesIn(join(checkpoints, runId, 'weights'))) {
      const step = stepOfState(name);
      if (step !== undefined) found.push({ path: `tinker://${runId}/weights/${name}`, step });
    }
  }
  return found;
}

/** The states that a Tinker server has of the training run that saved the state at `path`. */
export async function statesAtServer(client: TinkerClient, path: string): Promise<SavedState[]> {
  const checkpoints = await client.listCheckpoints(parseTinkerPath(path).runId);
  return checkpoints.flatMap((checkpoint) => {
    const step = stepOfState(parseTinkerPath(checkpoint.path).name);
    return checkpoint.kind === 'training' && step !== undefined
      ? { path: checkpoint.path, step }
      : [];
  });
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).sort();
  } catch {
    return [];
  }
}
