import { z } from 'zod';
import { UserError } from '../../shared/base/errors.js';
import type { Broker } from '../../shared/broker/broker.js';
import { shownAddress } from '../../shared/broker/connect.js';
import type { StoredSize } from '../../shared/broker/stored-run.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { httpAddress } from '../../shared/service/config-fields.js';
import { describeFlags } from '../../shared/service/config-help.js';
import { type Environment, loadConfig } from '../../shared/service/config.js';
import { printError } from '../../shared/service/telemetry/print-error.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import { WireError } from '../../shared/wire/codec.js';
import { type FoundRun, findRun, whichRun } from '../existing-run/find-run.js';
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
  keepCheckpoints: z.boolean().default(false).describe('leaves the checkpoints at the backend.'),
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
checkpoints' ledger, the adapters. On the backend these are the checkpoints that the run names. The run's
folder stays. A run with a NATS server and a backend of its own is deleted by deleting its folder.

${describeFlags(DeleteConfig.shape, deleteService)}
`;
}

/**
 * @returns the exit code: 0, or the signal's code after Ctrl-C.
 * @throws {UserError} for an unknown run, one that has servers of its own only, while a learner leads it, or if its checkpoints
 *   would stay without a name.
 */
export async function deleteRun(argv: readonly string[], env: Environment): Promise<number> {
  const given = loadConfig(DeleteConfig, deleteService, argv, env);
  const found = await findRun(given);
  const { run, folder, natsUrl, backendUrl } = found;
  if (natsUrl === undefined && backendUrl === undefined) {
    throw new UserError(
      `run ${run} is on no server of yours: everything is in ${folder!.path}; delete that folder`,
    );
  }
  const apiKey = keyOf(given, env);
  const deletesAt = given.keepCheckpoints ? undefined : backendUrl;
  if (given.yes && deletesAt !== undefined && apiKey === undefined) {
    throw new UserError(`give the key of ${deletesAt} by --api-key or TINKER_API_KEY`);
  }
  return shortCommand('delete', undefined, async ({ stop, folder: logFolder, log }) => {
    const { stop: signal, hurry } = stop;
    const natsBinary = () => ensureNatsServer({ env, report: printError, signal });
    const place = { found, natsBinary, deadlineMs: 60_000, logFolder };
    const store = { ...place, command: 'delete', signal, hurry, log, role: 'operator' } as const;
    await readStore(store, async (broker) => {
      const size = await broker.storedSize();
      if (size.streams === 0) throw new UserError(`the NATS server knows no run ${run}`);
      const refusal = `a learner leads run ${run}; stop it, and then delete the run`;
      await using _lead = await takeLead(broker, 'delete', refusal, signal);
      const checkpoints = await checkpointsOf(broker).catch((caught: unknown) => {
        const isOfAnotherVersion = caught instanceof UserError || caught instanceof WireError;
        if (!given.keepCheckpoints || !isOfAnotherVersion || signal.aborted) throw caught;
        return []; // they stay, so such a run can be deleted too
      });

      printWhatIsThere(size, checkpoints, { ...found, deletesAt });
      if (!given.yes) {
        print('nothing was deleted; add --yes to delete it');
        return;
      }
      const isUnreachable = backendUrl === undefined && folder === undefined;
      if (checkpoints.length > 0 && isUnreachable && !given.keepCheckpoints) {
        throw new UserError(
          'only this NATS server knows the names of the checkpoints; give --backend-url to delete them too, or --keep-checkpoints to leave them',
        );
      }
      // NATS names the checkpoints and so comes last: the command can be repeated.
      if (deletesAt !== undefined) {
        const access = { baseUrl: deletesAt, apiKey: apiKey!, log, signal };
        await using client = await TinkerClient.connect(access);
        for (const path of checkpoints) await client.deleteCheckpoint(path);
      }
      if (natsUrl !== undefined) await broker.deleteRun();
      print(`deleted${folder === undefined ? '' : `; its folder ${folder.path} stays`}`);
    });
    return 0;
  });
}

/**
 * The checkpoints that the run has saved at its backend, as far as NATS names them; not the one that it began from. None once
 * the configuration, which names that one, is gone: a deletion that was interrupted had deleted or left the checkpoints before it.
 */
async function checkpointsOf(broker: Broker): Promise<string[]> {
  const config = await new RunConfigStore(broker).get();
  if (config === undefined) return [];
  const checkpoint = await broker.ledger.read();
  const manifests = await broker.policy.manifests();
  const paths = [
    ...(checkpoint?.states ?? []).map(({ path }) => path),
    ...(checkpoint === undefined ? [] : [checkpoint.statePath]),
    ...manifests.flatMap(({ samplerPath, adapter }) => [samplerPath, adapter?.files ?? []].flat()),
  ];
  return [...new Set(paths)].filter((path) => path !== config.from?.path);
}

function printWhatIsThere(
  size: StoredSize,
  checkpoints: readonly string[],
  {
    natsUrl,
    backendUrl,
    folder,
    deletesAt,
  }: Pick<FoundRun, 'natsUrl' | 'backendUrl' | 'folder'> & {
    readonly deletesAt?: string | undefined;
  },
): void {
  if (natsUrl !== undefined) print(`on ${shownAddress(natsUrl)}: ${sizeText(size)}`);
  if (checkpoints.length === 0) return;
  const count = counted(checkpoints.length, 'checkpoint');
  if (deletesAt !== undefined) print(`on ${deletesAt}: ${count}`);
  else if (backendUrl !== undefined) print(`on ${backendUrl}: ${count}, which stay there`);
  else if (folder !== undefined) print(`in ${folder.checkpoints}: ${count}, which stay there`);
  else
    print(`at the backend: ${count}, which stay there; name it with --backend-url to delete them`);
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
