import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { readJson } from '../../../shared/base/read-json.js';
import type { RunFolder } from '../../run-folder.js';
import { SampledGroup } from './sampled-group.js';

const fileIn = ({ path }: Pick<RunFolder, 'path'>) => join(path, 'rollouts.json');

/** Keeps the newest rollouts of a run beside its history: its queues are empty when it is over. */
export async function writeSamples(
  folder: Pick<RunFolder, 'path'>,
  samples: readonly SampledGroup[],
): Promise<void> {
  const path = fileIn(folder);
  await writeFile(`${path}.partial`, `${JSON.stringify(samples)}\n`);
  await rename(`${path}.partial`, path);
}

/** The rollouts that a run has kept; none where there is no file, or one of another release. */
export async function readSamples(folder: Pick<RunFolder, 'path'>): Promise<SampledGroup[]> {
  try {
    return z.array(SampledGroup).parse(await readJson(fileIn(folder)));
  } catch {
    return [];
  }
}
