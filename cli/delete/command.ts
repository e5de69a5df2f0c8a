import { z } from 'zod';
import { UserError } from '../../shared/base/errors.js';
import type { Broker, StoredSize } from '../../shared/broker/broker.js';
import { httpAddress } from '../../shared/service/config-fields.js';
import { describeFlags } from '../../shared/service/config-help.js';
import { type Environment, loadConfig } from '../../shared/service/config.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { printError } from '../../shared/service/telemetry/print-error.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import { type FoundRun, findRun, whichRun } from '../existing-run/find-run.js';
import { hasLearner } from '../existing-run/learner-lease.js';
import { readStore } from '../existing-run/read-store.js';
import { takeLead } from '../existing-run/take-lead.js';
import { ensureNatsServer } from '../nats-server/ensure.js';
import { shortCommand } from '../processes/stop-signals.js';
import { keyOf, processSettings } from '../up/up-config.js';

/** Which run to delete, and where it left what. */
export const DeleteConfig = z.object({
  ...whichRun,
  backendUrl: httpAddress
    .optional()
    .describe(
      'the Tinker server that has the checkpoints of the run; by default that of its folder.',
    ),
  apiKey: processSettings.apiKey,
  yes: z
    .boolean()
    .default(false)
    .describe('deletes; without it the command only prints what it would delete.'),
});
type DeleteConfig = z.infer<typeof DeleteConfig>;

/** `offbeat-delete` rather than `delete`, since environment variables begin with it. */
export const deleteService = 'offbeat-delete';

export function deleteHelp(): string {
  return `offbeat delete: deletes what a finished run has left on servers.

On the NATS server these are its streams and buckets: the queues, the history, the configuration, the
checkpoints' ledger, the adapters. With a backend they are the checkpoints that the run names. The run's
folder stays. A run that has its own NATS server is deleted by deleting its folder.

${describeFlags(DeleteConfig.shape, deleteService)}
`;
}

/**
 * @returns the exit code: 0, or the signal's code after Ctrl-C.
 * @throws {UserError} for an unknown run, one that has its own NATS server, or while a learner leads it.
 */
export async function deleteRun(argv: readonly string[], env: Environment): Promise<number> {
  const given = loadConfig(DeleteConfig, deleteService, argv, env);
  const config = { ...given, apiKey: keyOf(given, env) };
  const found = await findRun(config);
  if (found.natsUrl === undefined) {
    throw new UserError(
      `run ${found.run} has nothing on a server of others: everything is in ${found.folder!.path}; delete that folder`,
    );
  }
  return shortCommand('delete', undefined, async ({ stop, folder, log }) => {
    const { stop: signal, hurry } = stop;
    const natsBinary = () => ensureNatsServer({ env, report: printError, signal });
    const place = { found, natsBinary, deadlineMs: 60_000, logFolder: folder };
    const store = { ...place, command: 'delete', signal, hurry, log, role: 'operator' } as const;
    return await readStore(store, async (broker) => {
      await deleteFrom(broker, { config, found, signal, log });
      return 0;
    });
  });
}

interface Work {
  readonly config: DeleteConfig;
  readonly found: FoundRun;
  readonly signal: AbortSignal;
  readonly log: Logger;
}

async function deleteFrom(broker: Broker, { config, found, signal, log }: Work): Promise<void> {
  const { run, natsUrl, backendUrl, folder } = found;
  const size = await broker.storedSize();
  if (size.streams === 0) throw new UserError(`the NATS server knows no run ${run}`);
  const refusal = `a learner leads run ${run}, or was killed a moment ago; stop it, and then delete the run`;
  if (hasLearner(await broker.ledger.leader(), Date.now())) throw new UserError(refusal);
  await using _lead = await takeLead(broker, 'delete', refusal, signal);
  const checkpoints = await checkpointsOf(broker);
  print(`on ${natsUrl!}: ${sizeText(size)}`);
  if (checkpoints.length > 0) {
    const count = counted(checkpoints.length, 'checkpoint');
    print(
      backendUrl === undefined
        ? `at the backend: ${count}, which stay there; name it with --backend-url to delete them`
        : `on ${backendUrl}: ${count}`,
    );
  }
  if (!config.yes) {
    print('nothing was deleted; add --yes to delete it');
    return;
  }
  // The ledger goes last, since it names the checkpoints: the command can be repeated.
  if (backendUrl !== undefined && checkpoints.length > 0) {
    const { apiKey } = config;
    if (apiKey === undefined) {
      throw new UserError(
        '--backend-url needs the key of that server: give --api-key or TINKER_API_KEY',
      );
    }
    await using client = await TinkerClient.connect({ baseUrl: backendUrl, apiKey, log, signal });
    for (const path of checkpoints) await client.deleteCheckpoint(path);
  }
  await broker.deleteRun();
  print(`deleted${folder === undefined ? '' : `; its folder ${folder.path} stays`}`);
}

/** The checkpoints that the run has at its backend, as far as NATS knows them. */
async function checkpointsOf({
  ledger,
  policy,
}: Pick<Broker, 'ledger' | 'policy'>): Promise<string[]> {
  const checkpoint = await ledger.read();
  const states = checkpoint?.states?.map(({ path }) => path) ?? [];
  const versions = (await policy.manifests()).map(({ samplerPath }) => samplerPath);
  const newest = checkpoint === undefined ? [] : [checkpoint.statePath];
  return [...new Set([...states, ...newest, ...versions])];
}

function sizeText({ streams, messages, bytes }: StoredSize): string {
  const size = bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
  return `${streams} streams with ${counted(messages, 'message')}, ${size}`;
}

function counted(count: number, what: string): string {
  return `${count.toLocaleString('en')} ${what}${count === 1 ? '' : 's'}`;
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
