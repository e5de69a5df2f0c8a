import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { UserError } from '../../base/errors.js';
import { ask, HubFailure, persistently, type Hub } from './hub.js';

const Path = z
  .string()
  .regex(/^[^\\\0]+$/)
  .refine((path) => path.split('/').every((part) => !['', '.', '..'].includes(part)));

/** A file of a dataset with its size and checksum. */
export const HubFile = z.strictObject({
  path: Path, // inside the dataset: `data/train-00000-of-00001.parquet`
  size: z.int().nonnegative(), // bytes
  /** Large files: SHA-256 of the content. Other files: git's blob id, a SHA-1 of size and content. */
  checksum: z.string().regex(/^(sha256:[0-9a-f]{64}|git:[0-9a-f]{40})$/),
});
export type HubFile = z.infer<typeof HubFile>;

/** The files of one revision of a dataset, which never change. */
export interface DatasetListing {
  readonly commit: string;
  readonly files: readonly HubFile[];
}

/** The part of the hub's answer that we read. */
const Answer = z.object({
  sha: z.string().regex(/^[0-9a-f]{40}$/),
  siblings: z.array(
    z.object({
      rfilename: Path,
      size: z.int().nonnegative(),
      blobId: z.string().regex(/^[0-9a-f]{40}$/),
      lfs: z.object({ sha256: z.string().regex(/^[0-9a-f]{64}$/) }).optional(),
    }),
  ),
});

/**
 * Lists the files of a dataset. If the hub cannot be reached, returns the last stored list.
 *
 * @param repository `OWNER/NAME`, and `revision` a branch, a tag or a commit.
 * @throws {HubFailure} if it cannot be reached and no list is stored.
 * @throws {UserError} if there is no such dataset.
 */
export async function listDataset(
  hub: Hub,
  repository: string,
  revision: string,
): Promise<DatasetListing> {
  const name = encodeURIComponent(revision);
  const keptAt = join(hub.folder, repository, 'revisions', `${name}.json`);
  try {
    const text = await persistently(hub, async () => {
      const signal = AbortSignal.timeout(hub.stallMs);
      const response = await ask(hub, `/api/datasets/${repository}/revision/${name}?blobs=true`, {
        signal,
      });
      return response.text().catch((cause: unknown) => {
        throw new HubFailure(`the list of files of ${repository} was cut off`, { cause });
      });
    });
    const listing = listingOf(text, repository);
    await mkdir(dirname(keptAt), { recursive: true });
    await writeFile(`${keptAt}.${process.pid}`, text);
    await rename(`${keptAt}.${process.pid}`, keptAt);
    return listing;
  } catch (caught) {
    const kept = caught instanceof HubFailure ? await readFile(keptAt, 'utf8').catch(() => '') : '';
    if (kept === '') throw caught;
    return listingOf(kept, repository);
  }
}

function listingOf(text: string, repository: string): DatasetListing {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined;
  }
  const parsed = Answer.safeParse(json);
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!;
    throw new UserError(
      `the hub's list of the files of ${repository} is not understood ` +
        `(${path.join('.') || 'all of it'}: ${message}); is HF_ENDPOINT a hub?`,
    );
  }
  const { data } = parsed;
  return {
    commit: data.sha,
    files: data.siblings.map(({ rfilename: path, size, blobId, lfs }) => ({
      path,
      size,
      checksum: lfs === undefined ? `git:${blobId}` : `sha256:${lfs.sha256}`,
    })),
  };
}
