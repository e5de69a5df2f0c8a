import { z } from 'zod';
import { UserError } from '../../base/errors.js';
import { ask, HubFailure, persistently, type Hub, type Repository } from './hub.js';

const Path = z
  .string()
  .regex(/^[^\\\0]+$/)
  .refine((path) => path.split('/').every((part) => !['', '.', '..'].includes(part)));

/** A file of a repository with its size and checksum. */
export const HubFile = z.strictObject({
  path: Path, // inside the repository: `data/train-00000-of-00001.parquet`
  size: z.int().nonnegative(), // bytes
  /** Large files: SHA-256 of the content. Other files: git's blob id, a SHA-1 of size and content. */
  checksum: z.string().regex(/^(sha256:[0-9a-f]{64}|git:[0-9a-f]{40})$/),
});
export type HubFile = z.infer<typeof HubFile>;

/** The license that a repository names. */
interface License {
  readonly id: string; // apache-2.0, or `other`
  readonly name?: string | undefined;
  readonly link?: string | undefined;
}

/** The files of one revision, which never change. */
export interface Listing {
  readonly commit: string;
  readonly files: readonly HubFile[];
  readonly license?: License;
}

/** The part of a repository's description that we read; it is written by its owner. */
const Card = z.object({
  license: z.union([z.string(), z.array(z.string()).nonempty()]),
  license_name: z.string().optional(),
  license_link: z.string().optional(),
});

/** The part of the hub's answer that we read. */
const Answer = z.object({
  sha: z.string().regex(/^[0-9a-f]{40}$/),
  cardData: Card.optional().catch(undefined),
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
 * The hub's list of the files of a repository, as text for `listingOf`.
 *
 * @param revision a branch, a tag or a commit.
 * @throws {HubFailure} if it cannot be reached.
 * @throws {UserError} if there is no such repository, or not for this user.
 */
export async function askForListing(
  hub: Hub,
  { kind, name }: Repository,
  revision: string,
): Promise<string> {
  const path = `/api/${kind}/${name}/revision/${encodeURIComponent(revision)}?blobs=true`;
  return persistently(hub, async () => {
    const response = await ask(hub, path, { signal: AbortSignal.timeout(hub.stallMs) });
    return response.text().catch((cause: unknown) => {
      throw new HubFailure(`the list of files of ${name} was cut off`, { cause });
    });
  });
}

/** Parses the hub's answer. @throws {UserError} if it is none. */
export function listingOf(text: string, { name }: Repository): Listing {
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
      `the hub's list of the files of ${name} is not understood ` +
        `(${path.join('.') || 'all of it'}: ${message}); is HF_ENDPOINT a hub?`,
    );
  }
  const { data } = parsed;
  const license = licenseOf(data.cardData);
  return {
    commit: data.sha,
    ...(license !== undefined && { license }),
    files: data.siblings.map(({ rfilename: path, size, blobId, lfs }) => ({
      path,
      size,
      checksum: lfs === undefined ? `git:${blobId}` : `sha256:${lfs.sha256}`,
    })),
  };
}

function licenseOf(card: z.infer<typeof Card> | undefined): License | undefined {
  if (card === undefined) return undefined;
  const { license, license_name: name, license_link: link } = card;
  return { id: [license].flat().join(', '), name, link };
}
