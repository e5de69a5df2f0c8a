import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errorText, UserError } from '../../shared/base/errors.js';

const HubSource = z.strictObject({
  kind: z.literal('hub'),
  endpoint: z.string(),
  repository: z.string(), // OWNER/NAME
  revision: z.string(), // as asked for: a branch, a tag or a commit
  commit: z.string(),
});
const GgufSource = z.strictObject({
  kind: z.literal('gguf'),
  path: z.string(),
  sha256: z.string(),
  dtype: z.enum(['bf16', 'fp32']),
});

/** Where a model comes from. Two requests for the same source give the same directory. */
export const Source = z.discriminatedUnion('kind', [
  HubSource,
  GgufSource,
  z.strictObject({
    kind: z.literal('directory'),
    path: z.string(),
    /** Where that directory's model came from, if `offbeat model get` had made it. */
    from: z.discriminatedUnion('kind', [HubSource, GgufSource]).optional(),
  }),
]);
export type Source = z.infer<typeof Source>;

/** The file that `offbeat model get` adds to a model directory. */
export const Origin = z.strictObject({
  v: z.literal(1),
  source: Source,
  /** GGUF: how many tensors had each format. The error of the quantization stays in the weights. */
  formats: z.record(z.string(), z.int()).optional(),
  license: z
    .strictObject({ id: z.string(), name: z.string().optional(), link: z.string().optional() })
    .optional(),
  files: z.array(
    z.strictObject({
      path: z.string(),
      size: z.int().nonnegative(),
      checksum: z.string().optional(),
    }),
  ),
});
export type Origin = z.infer<typeof Origin>;

export const originFile = 'origin.json';

export function originText(origin: Origin): string {
  return `${JSON.stringify(origin, undefined, 2)}\n`;
}

/**
 * The origin of the model in a folder; undefined if the folder does not exist or is empty.
 *
 * @throws {UserError} if something else is there.
 */
export async function readOrigin(folder: string): Promise<Origin | undefined> {
  const names = await readdir(folder).catch((caught: unknown) => {
    if ((caught as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw new UserError(`${folder} cannot be read (${errorText(caught)}); name another --out`);
  });
  if (names.every((name) => name === '.lock')) return undefined; // that of this process
  try {
    return Origin.parse(JSON.parse(await readFile(join(folder, originFile), 'utf8')));
  } catch (cause) {
    throw new UserError(
      `${folder} is not from \`offbeat model get\` (${errorText(cause)}); name another --out, or delete it`,
      { cause },
    );
  }
}

/** A source in words. */
export function sourceText(source: Source): string {
  if (source.kind === 'hub') {
    return `${source.repository} at ${source.revision} (commit ${source.commit.slice(0, 12)})`;
  }
  if (source.kind === 'gguf') return `${source.path} in ${source.dtype}`;
  return source.from === undefined
    ? source.path
    : `${source.path}, from ${sourceText(source.from)}`;
}

/** @throws {UserError} naming the first file of a finished directory that is missing or has another size. */
export async function checkFiles(folder: string, { files }: Origin): Promise<void> {
  for (const { path, size } of files) {
    const found = await stat(join(folder, path)).catch(() => undefined);
    if (found?.size === size) continue;
    throw new UserError(
      `${join(folder, path)} has ${found?.size ?? 'no'} bytes instead of ${size}; delete ${folder} and get the model again`,
    );
  }
}

/** The sizes of files of a folder, in the given order. */
export async function sizesOf(folder: string, names: readonly string[]): Promise<Origin['files']> {
  const files: Origin['files'] = [];
  for (const path of names) files.push({ path, size: (await stat(join(folder, path))).size });
  return files;
}
