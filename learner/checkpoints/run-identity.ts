import { readFile } from 'node:fs/promises';
import { UserError } from '../../shared/base/errors.js';
import type { RunConfigStore } from '../../shared/run/run-config-store.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { configDifferences, type LearnerConfig } from '../config.js';

/**
 * The model to train, as the backend calls it.
 *
 * @throws {UserError} if the backend does not serve it, or serves several and none was named.
 */
export function chooseModel(
  models: TinkerClient['models'],
  { modelName, backendUrl }: Pick<LearnerConfig, 'modelName' | 'backendUrl'>,
): string {
  const names = models.map(({ name }) => name);
  const served = names.length === 0 ? 'none' : names.join(', ');
  if (modelName !== undefined) {
    // A server that lists none may still have it; creating the run will tell.
    if (names.length === 0 || names.includes(modelName)) return modelName;
    throw new UserError(
      `the backend at ${backendUrl} does not serve --model-name ${modelName}; it serves ${served}`,
    );
  }
  if (names.length === 1) return names[0]!;
  throw new UserError(
    `the backend at ${backendUrl} serves ${served}: choose the model with --model-name`,
  );
}

/**
 * The configuration that this run has, which is ours if it has none yet.
 *
 * @param copy of it in the run's folder, which counts where NATS has lost it.
 * @throws {UserError} if the run began with another one: its weights would continue as something else.
 */
export async function settleConfig(
  store: Pick<RunConfigStore, 'get' | 'put'>,
  ours: RunConfig,
  copy?: RunConfig,
): Promise<RunConfig> {
  const inNats = await store.get();
  const stored = inNats ?? copy ?? ours;
  const differences = configDifferences(stored, ours);
  if (differences.length === 0) {
    if (inNats === undefined) await store.put(stored);
    return stored;
  }
  throw new UserError(
    [
      `run ${ours.run} exists with another configuration; choose another --run, or give what it has:`,
      ...differences.map((difference) => `  - ${difference}`),
    ].join('\n'),
  );
}

/** The configuration in a file; undefined if there is none of this run. */
export async function readConfig(path: string, run: string): Promise<RunConfig | undefined> {
  const text = await readFile(path, 'utf8').catch(() => '{}');
  const found = RunConfig.safeParse(parsed(text));
  return found.success && found.data.run === run ? found.data : undefined;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // cut off
  }
}
