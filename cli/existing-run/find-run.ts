import { existsSync } from 'node:fs';
import { z } from 'zod';
import { natsAddress, string } from '../../shared/service/config-fields.js';
import { RunName } from '../../shared/wire/run-name.js';
import { UserError } from '../../shared/base/errors.js';
import { isInUse } from '../../shared/service/folder-lock.js';
import { readLaunch } from '../up/resume.js';
import { runFolderAt, runsIn, unknownRun, type RunFolder } from '../run-folder.js';
import type { UpConfig } from '../up/up-config.js';
import { keyFolderIn } from '../nats-server/start.js';
import { findRunningNats, type NatsPorts } from '../nats-server/running.js';

/** The flags that say which run is meant, and where its store is. */
export const whichRun = {
  run: RunName.describe('the run: its folder runs/TEXT, or its name on the server at --nats-url.'),
  natsUrl: natsAddress
    .optional()
    .describe("the NATS server that holds the run, if not the run's own."),
  natsKeys: string
    .optional()
    .describe('folder with the keys to that server, as offbeat nats-config writes it.'),
  runsDir: string.default('runs').describe('folder of the runs of this machine.'),
};
type WhichRun = z.infer<z.ZodObject<typeof whichRun>>;

/** The locations of a run's parts, from its folder and the flags. */
export interface FoundRun
  extends
    Pick<UpConfig, 'sampler' | 'engineUrl' | 'modelDir' | 'modelName'>,
    Partial<Pick<UpConfig, 'loraAlpha'>> {
  readonly run: string;
  readonly folder: RunFolder | undefined; // none here, where only a NATS server knows of it
  readonly natsUrl: string | undefined; // of the user's own server; else the store is in the folder
  readonly natsKeys: string | undefined; // to the user's own server, if it requires any
  readonly backendUrl: string | undefined; // of the user's own; else the checkpoints are in the folder
}

/** The run that the flags name, and the locations of its other parts, if given. */
type NamedRun = WhichRun & {
  readonly [Part in 'modelDir' | 'sampler' | 'engineUrl' | 'backendUrl']?:
    | UpConfig[Part]
    | undefined;
};

/** @throws {UserError} if there is no such run, or its folder is not one of `offbeat up`. */
export async function findRun(config: NamedRun): Promise<FoundRun> {
  const { run, runsDir, modelDir, sampler, engineUrl, natsUrl, natsKeys, backendUrl } = config;
  const flags = {
    ...(modelDir !== undefined && { modelDir }),
    ...(sampler !== undefined && { sampler }),
    ...(engineUrl !== undefined && { engineUrl }),
    ...(natsUrl !== undefined && { natsUrl }),
    ...(natsKeys !== undefined && { natsKeys }),
    ...(backendUrl !== undefined && { backendUrl }),
  };
  const runs = await runsIn(runsDir);
  const folder = runFolderAt(runsDir, run);
  // A learner that was started by itself has a folder too, but all else that is known of the run is at the server.
  const isElsewhere = natsUrl !== undefined && !existsSync(folder.launch);
  if (!runs.includes(run) || isElsewhere) {
    const nowhere = { folder: undefined, backendUrl: undefined, sampler: 'onnx' } as const;
    if (natsUrl !== undefined) return { run, ...nowhere, natsUrl, natsKeys, ...flags };
    throw new UserError(
      `${unknownRun(run, runsDir, runs)} A run on another machine needs --nats-url.`,
    );
  }
  const { launcher } = await readLaunch(folder);
  const samplesAsBefore = sampler === undefined || sampler === launcher.sampler;
  const began = {
    sampler: launcher.sampler,
    engineUrl: samplesAsBefore ? launcher.engineUrl : undefined,
    modelDir: launcher.modelDir,
    modelName: launcher.modelName,
    loraAlpha: launcher.loraAlpha,
    natsUrl: launcher.natsUrl,
    natsKeys: launcher.natsKeys,
    backendUrl: launcher.backendUrl,
  };
  const place = { run, folder, ...began, ...flags };
  if (natsKeys !== undefined && place.natsUrl === undefined) throw new UserError(keysOfNoServer);
  return place;
}

/** Why `--nats-keys` alone is refused. */
export const keysOfNoServer =
  "--nats-keys names the keys to a NATS server of your own: add --nats-url, or remove it, since a run's own server has its keys in the folder of the run";

/** A server that holds a run, and the folder of the keys to it, if it requires any. */
export interface RunningStore {
  readonly natsUrl: string;
  readonly keyFolder: string | undefined;
}

/** The run's own server, if the run is up: that of a reader, or of a killed process, is about to end. */
export async function ownServer({ path, nats }: RunFolder): Promise<NatsPorts | undefined> {
  return isInUse(path) ? await findRunningNats(nats).catch(() => undefined) : undefined;
}

/** The server that holds the run now: the user's own, or the run's if it is up. */
export async function runningStore({
  natsUrl,
  natsKeys,
  folder,
}: Pick<FoundRun, 'natsUrl' | 'natsKeys' | 'folder'>): Promise<RunningStore | undefined> {
  if (natsUrl !== undefined) return { natsUrl, keyFolder: natsKeys };
  const running = folder && (await ownServer(folder));
  if (folder === undefined || running === undefined) return undefined;
  return { natsUrl: running.url, keyFolder: keyFolderIn(folder.nats) };
}
