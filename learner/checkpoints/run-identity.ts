import type { Broker } from '../../shared/broker/broker.js';
import { UserError } from '../../shared/errors.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import type { RunConfig } from '../../shared/wire/run-config.js';
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
 * @throws {UserError} if the run began with another one: its weights would continue as something else.
 */
export async function settleConfig(
  store: Pick<Broker['config'], 'get' | 'put'>,
  ours: RunConfig,
): Promise<RunConfig> {
  const stored = await store.get();
  if (stored === undefined) {
    await store.put(ours);
    return ours;
  }
  const differences = configDifferences(stored, ours);
  if (differences.length === 0) return stored;
  throw new UserError(
    [
      `run ${ours.run} exists with another configuration; choose another --run, or give what it has:`,
      ...differences.map((difference) => `  - ${difference}`),
    ].join('\n'),
  );
}
