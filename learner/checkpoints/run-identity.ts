import { readFile } from 'node:fs/promises';
import { UserError } from '../../shared/base/errors.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { configDifferences, type LearnerConfig } from '../config.js';

/**
 * Returns the name of the model to train, as the backend knows it.
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
    // A server that lists no models may still have it; creating the run shows whether it does.
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
 * Returns the configuration of the run: the stored one, else `ours`.
 *
 * @param inNats the configuration that all services read.
 * @param copy the one in the run's folder, used if NATS has lost its own.
 * @throws {UserError} if the run was started with another configuration, which its weights depend on.
 */
export function settleConfig(
  ours: RunConfig,
  inNats: RunConfig | undefined,
  copy?: RunConfig,
): RunConfig {
  const stored = inNats ?? copy ?? ours;
  const differences = configDifferences(stored, ours);
  if (differences.length === 0) return stored;
  throw new UserError(
    [
      `run ${ours.run} exists with another configuration; choose another --run, delete that run (npx offbeat delete --run ${ours.run}, with --nats-url if it is on a server of your own), or use its configuration:`,
      ...differences.map((difference) => `  - ${difference}`),
    ].join('\n'),
  );
}

/** Reads the configuration in a file; undefined if the file has none of this run. */
export async function readConfig(path: string, run: string): Promise<RunConfig | undefined> {
  const text = await readFile(path, 'utf8').catch(() => '{}');
  const found = RunConfig.safeParse(parseJson(text));
  return found.success && found.data.run === run ? found.data : undefined;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // truncated
  }
}
