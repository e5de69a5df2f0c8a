import { rename, writeFile } from 'node:fs/promises';
import { z } from 'zod';
import { errorText, UserError } from '../../shared/base/errors.js';
import { readJson } from '../../shared/base/read-json.js';
import type { RunFolder } from '../run-folder.js';

/** What `offbeat up` writes down of how it started a run: launch.json. */
export const Launch = z.object({
  run: z.string(),
  /** Its own flags, without the key of a backend. */
  launcher: z.looseObject({
    sampler: z.enum(['onnx', 'tinker']),
    modelDir: z.string().optional(),
    modelName: z.string().optional(),
    backendUrl: z.string().optional(),
    natsUrl: z.string().optional(),
    natsKeys: z.string().optional(),
  }),
  /** The learner's settings that were given. */
  settings: z.record(z.string(), z.unknown()).default({}),
});
export type Launch = z.infer<typeof Launch>;

/** @throws {UserError} if the folder is not one of `offbeat up`. */
export async function readLaunch({ launch }: Pick<RunFolder, 'launch'>): Promise<Launch> {
  try {
    return Launch.parse(await readJson(launch));
  } catch (cause) {
    throw new UserError(
      `${launch} does not tell how the run was started (${errorText(cause)}); is it one of offbeat up?`,
      { cause },
    );
  }
}

/**
 * As a whole: a crash leaves the one that was there. For its owner alone: the URL of the user's own
 * NATS may hold a password.
 */
export async function writeLaunch(path: string, launch: Launch): Promise<void> {
  const partial = `${path}.partial`;
  await writeFile(partial, `${JSON.stringify(launch, undefined, 2)}\n`, { mode: 0o600 });
  await rename(partial, path);
}
