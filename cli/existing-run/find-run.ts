import { UserError } from '../../shared/base/errors.js';
import { readLaunch } from '../up/launch.js';
import { runFolderAt, runsIn, unknownRun, type RunFolder } from '../run-folder.js';
import type { UpConfig } from '../up/up-config.js';
import type { WhichRun } from './which-run.js';

/** Where the parts of a run are, as its folder and the flags tell. */
export interface FoundRun extends Pick<UpConfig, 'sampler' | 'modelDir' | 'modelName'> {
  readonly run: string;
  readonly folder: RunFolder | undefined; // none here, where only a NATS server knows of it
  readonly natsUrl: string | undefined; // of the user's own server; else the store is in the folder
  readonly natsKeys: string | undefined; // to the user's own server, if it wants any
  readonly backendUrl: string | undefined; // of the user's own; else the checkpoints are in the folder
}

/** The run that flags name, and what they say of where its other parts are. */
type NamedRun = WhichRun & {
  readonly [Part in 'modelDir' | 'sampler' | 'backendUrl']?: UpConfig[Part] | undefined;
};

/** @throws {UserError} if there is no such run, or its folder is not one of `offbeat up`. */
export async function findRun(config: NamedRun): Promise<FoundRun> {
  const { run, runsDir, modelDir, sampler, natsUrl, natsKeys, backendUrl } = config;
  const flags = {
    ...(modelDir !== undefined && { modelDir }),
    ...(sampler !== undefined && { sampler }),
    ...(natsUrl !== undefined && { natsUrl }),
    ...(natsKeys !== undefined && { natsKeys }),
    ...(backendUrl !== undefined && { backendUrl }),
  };
  const runs = await runsIn(runsDir);
  if (!runs.includes(run)) {
    const nowhere = { folder: undefined, backendUrl: undefined, sampler: 'onnx' } as const;
    if (natsUrl !== undefined) return { run, ...nowhere, natsUrl, natsKeys, ...flags };
    throw new UserError(
      `${unknownRun(run, runsDir, runs)} A run on another machine needs --nats-url.`,
    );
  }
  const folder = runFolderAt(runsDir, run);
  const { launcher } = await readLaunch(folder);
  const began = {
    sampler: launcher.sampler,
    modelDir: launcher.modelDir,
    modelName: launcher.modelName,
    natsUrl: launcher.natsUrl,
    natsKeys: launcher.natsKeys,
    backendUrl: launcher.backendUrl,
  };
  return { run, folder, ...began, ...flags };
}
