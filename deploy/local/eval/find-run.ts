import { readdir, readFile } from 'node:fs/promises';
import { z } from 'zod';
import { errorText, UserError } from '../../../shared/errors.js';
import { nearest } from '../../../shared/nearest.js';
import { runFolderAt, type RunFolder } from '../run-folder.js';
import type { UpConfig } from '../up-config.js';
import type { EvalConfig } from './eval-config.js';

/** Where the parts of a run are, as its folder and the flags tell. */
export interface FoundRun extends Pick<UpConfig, 'sampler' | 'modelDir' | 'modelName'> {
  readonly run: string;
  readonly folder: RunFolder | undefined; // none here, where only a NATS server knows of it
  readonly natsUrl: string | undefined; // of the user's own server; else the store is in the folder
  readonly backendUrl: string | undefined; // of the user's own; else the checkpoints are in the folder
}

/** What `offbeat up` wrote down when it started the run. */
const Launch = z.object({
  launcher: z.object({
    sampler: z.enum(['onnx', 'tinker']),
    modelDir: z.string().optional(),
    modelName: z.string().optional(),
    backendUrl: z.string().optional(),
    natsUrl: z.string().optional(),
  }),
});

/** @throws {UserError} if there is no such run, or its folder is not one of `offbeat up`. */
export async function findRun(config: EvalConfig): Promise<FoundRun> {
  const { run, runsDir, modelDir, sampler, natsUrl, backendUrl } = config;
  const flags = {
    ...(modelDir !== undefined && { modelDir }),
    ...(sampler !== undefined && { sampler }),
    ...(natsUrl !== undefined && { natsUrl }),
    ...(backendUrl !== undefined && { backendUrl }),
  };
  const runs = await foldersIn(runsDir);
  if (!runs.includes(run)) {
    const nowhere = { folder: undefined, backendUrl: undefined, sampler: 'onnx' } as const;
    if (natsUrl !== undefined) return { run, ...nowhere, natsUrl, ...flags };
    throw new UserError(unknownRun(config, runs));
  }
  const folder = runFolderAt(runsDir, run);
  const { launcher } = await readLaunch(folder);
  return { run, folder, natsUrl: undefined, backendUrl: undefined, ...launcher, ...flags };
}

function unknownRun({ run, runsDir }: EvalConfig, runs: readonly string[]): string {
  const meant = nearest(run, runs);
  const known =
    meant !== undefined
      ? `did you mean ${meant}?`
      : runs.length > 0
        ? `there are ${runs.slice(-10).join(', ')}`
        : 'there are no runs';
  return `there is no run ${run} in ${runsDir}; ${known} A run on another machine needs --nats-url.`;
}

async function readLaunch({ launch }: RunFolder): Promise<z.infer<typeof Launch>> {
  try {
    return Launch.parse(JSON.parse(await readFile(launch, 'utf8')));
  } catch (cause) {
    throw new UserError(
      `${launch} does not tell how the run was started (${errorText(cause)}); is it one of offbeat up?`,
      { cause },
    );
  }
}

async function foldersIn(path: string): Promise<string[]> {
  try {
    const entries = await readdir(path, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  } catch {
    return [];
  }
}
