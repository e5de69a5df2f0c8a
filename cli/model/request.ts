import { stat } from 'node:fs/promises';
import { basename, extname, join, resolve } from 'node:path';
import { z } from 'zod';
import { UserError } from '../../shared/base/errors.js';
import { httpAddress, string } from '../../shared/service/config-fields.js';
import { loadConfig, type Environment } from '../../shared/service/config.js';
import { hubOf, repositoryPattern, type Hub } from '../../shared/service/hub/hub.js';

export const ModelConfig = z.object({
  out: string.optional().describe('folder of the model; by default models/NAME.'),
  revision: string
    .optional()
    .describe('branch, tag or commit of a model of the hub; by default main.'),
  dtype: z
    .enum(['bf16', 'fp32'])
    .optional()
    .describe('type of the weights that a GGUF file is unpacked to; by default bf16.'),
  endpoint: httpAddress
    .optional()
    .describe("the hub; by default HF_ENDPOINT, or else Hugging Face's own."),
});

export const modelService = 'offbeat-model';

/** What to get, and where to put it. */
export interface ModelRequest {
  readonly wanted:
    | {
        readonly kind: 'hub';
        readonly hub: Hub;
        readonly repository: string;
        readonly revision: string;
      }
    | { readonly kind: 'directory'; readonly path: string }
    | { readonly kind: 'gguf'; readonly path: string; readonly dtype: 'bf16' | 'fp32' };
  readonly out: string;
}

/**
 * Reads `get NAME|PATH --out DIR`.
 *
 * @throws {UserError} naming what is wrong.
 */
export async function loadModelRequest(
  [action, name, ...flags]: readonly string[],
  env: Environment,
): Promise<ModelRequest> {
  if (action !== 'get') {
    const found = action === undefined ? 'an action is missing' : `unknown action ${action}`;
    throw new UserError(`${found}; offbeat model get NAME|PATH is expected`);
  }
  if (name === undefined || name.startsWith('--')) {
    throw new UserError(
      'get which model? Give OWNER/NAME on the hub, a directory or a GGUF file before the flags',
    );
  }
  const { out, revision, dtype, endpoint } = loadConfig(ModelConfig, modelService, flags, env);
  const kind = await kindOf(name);
  if (kind !== 'hub' && revision !== undefined) {
    throw new UserError(`--revision ${revision} is for models of the hub, but ${name} is a path`);
  }
  if (kind !== 'hub' && endpoint !== undefined) {
    throw new UserError(`--endpoint ${endpoint} is for models of the hub, but ${name} is a path`);
  }
  if (kind !== 'gguf' && dtype !== undefined) {
    throw new UserError(
      `--dtype ${dtype} is for GGUF files; the weights of ${name} stay as they are`,
    );
  }
  const ownName = basename(resolve(name), extname(name) === '.gguf' ? '.gguf' : '');
  const folder = out?.replace(/(?<=.)\/+$/, '') ?? join('models', ownName); // the download is beside it
  if (kind === 'gguf') {
    return { wanted: { kind, path: resolve(name), dtype: dtype ?? 'bf16' }, out: folder };
  }
  if (kind === 'directory') {
    if (resolve(folder) !== resolve(name)) {
      return { wanted: { kind, path: resolve(name) }, out: folder };
    }
    throw new UserError(
      `the model is in ${name} already; check it with offbeat doctor --model-dir ${name}, or name another --out`,
    );
  }
  const hub = hubOf(endpoint === undefined ? env : { ...env, HF_ENDPOINT: endpoint });
  return { wanted: { kind, hub, repository: name, revision: revision ?? 'main' }, out: folder };
}

/** What exists on this machine is a path. @throws {UserError} if it is neither path nor name. */
async function kindOf(name: string): Promise<ModelRequest['wanted']['kind']> {
  const found = await stat(name).catch(() => undefined);
  if (found?.isDirectory() === true) return 'directory';
  if (found !== undefined && extname(name) === '.gguf') return 'gguf';
  if (found !== undefined) {
    throw new UserError(`${name} is neither a directory nor a *.gguf file; name one of them`);
  }
  if (repositoryPattern.test(name) && extname(name) !== '.gguf') return 'hub';
  throw new UserError(
    `there is no ${name}; name an existing directory or *.gguf file, or a model of the hub as OWNER/NAME`,
  );
}
