import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { cacheFolder } from '../../base/package-root.js';
import type { Environment } from '../../service/config.js';
import { fetchFile } from '../../service/hub/download.js';
import { hubOf, HubFailure, type Hub, type Repository } from '../../service/hub/hub.js';
import { askForListing, listingOf, type HubFile, type Listing } from '../../service/hub/listing.js';

/** The hub and the local folder of its datasets. */
export interface DatasetHub extends Hub {
  readonly folder: string;
}

/** The hub as `hubOf` has it; OFFBEAT_DATASETS is the folder. */
export function datasetHubOf(env: Environment): DatasetHub {
  const { OFFBEAT_DATASETS: folder } = env;
  return { ...hubOf(env), folder: folder || `${cacheFolder}/datasets` };
}

/**
 * Lists the files of a dataset. If the hub cannot be reached, returns the last stored list.
 *
 * @param name `OWNER/NAME`, and `revision` a branch, a tag or a commit.
 * @throws {HubFailure} if it cannot be reached and no list is stored.
 * @throws {UserError} if there is no such dataset.
 */
export async function listDataset(
  hub: DatasetHub,
  name: string,
  revision: string,
): Promise<Listing> {
  const dataset = datasetOf(name);
  const keptAt = join(hub.folder, name, 'revisions', `${encodeURIComponent(revision)}.json`);
  try {
    const text = await askForListing(hub, dataset, revision);
    const listing = listingOf(text, dataset);
    await mkdir(dirname(keptAt), { recursive: true });
    await writeFile(`${keptAt}.${process.pid}`, text);
    await rename(`${keptAt}.${process.pid}`, keptAt);
    return listing;
  } catch (caught) {
    const kept = caught instanceof HubFailure ? await readFile(keptAt, 'utf8').catch(() => '') : '';
    if (kept === '') throw caught;
    return listingOf(kept, dataset);
  }
}

/** Downloads a file of a dataset as `fetchFile` does, and returns its path. */
export async function fetchDatasetFile(
  hub: DatasetHub,
  { name, commit, file }: { name: string; commit: string; file: HubFile },
): Promise<string> {
  const path = join(hub.folder, name, commit, file.path);
  await fetchFile(hub, { repository: datasetOf(name), commit, file }, path);
  return path;
}

function datasetOf(name: string): Repository {
  return { kind: 'datasets', name };
}
