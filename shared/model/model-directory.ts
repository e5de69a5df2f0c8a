import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { errorText, UserError } from '../errors.js';
import { parseModelConfig, type ModelConfig } from './model-config.js';
import { parameterShapes } from './parameters.js';
import { parseSafetensors, toFloat32, type Tensor } from './safetensors.js';

/** A Hugging Face model directory whose configuration is one that this project can run. */
export interface ModelDirectory {
  readonly path: string;
  readonly config: ModelConfig;
  /** SHA-256 over configuration, weights and tokenizer: two processes with one digest hold one model. */
  readonly digest: string;
}

/** The small model that ships with the project. */
export const embeddedModelPath = join(packageRoot(), 'shared', 'model', 'base');

/**
 * Reads `config.json` and makes sure that weights and tokenizer are there.
 *
 * @throws {UserError} naming the missing file, or the key of config.json that is not supported.
 */
export async function readModelDirectory(path: string): Promise<ModelDirectory> {
  const configPath = join(path, 'config.json');
  const configText = await readText(configPath);
  const config = parseModelConfig(configText, configPath);
  const hash = createHash('sha256').update(configText);
  hash.update(await readText(join(path, 'tokenizer.json')));
  for (const file of await weightFiles(path)) hash.update(await readBytes(join(path, file)));
  return { path, config, digest: hash.digest('hex') };
}

/**
 * Every weight of the model as float32, by its Hugging Face name.
 *
 * @throws {UserError} when a weight is missing or has another shape than config.json says.
 */
export async function readWeights(directory: ModelDirectory): Promise<Map<string, Tensor>> {
  const expected = parameterShapes(directory.config);
  const weights = new Map<string, Tensor>();
  for (const file of await weightFiles(directory.path)) {
    const path = join(directory.path, file);
    try {
      for (const [name, entry] of parseSafetensors(await readBytes(path), path)) {
        const dims = expected.get(name);
        if (dims === undefined) continue; // such as a tied head that was stored all the same
        if (dims.join() !== entry.dims.join()) {
          throw new UserError(
            `${path}: ${name} has shape [${entry.dims.join()}], but config.json makes it [${dims.join()}]`,
          );
        }
        weights.set(name, { dims, data: toFloat32(entry) });
      }
    } catch (error) {
      if (error instanceof UserError) throw error;
      throw new UserError(`${errorText(error)}; download the model again`, { cause: error });
    }
  }
  const missing = [...expected.keys()].filter((name) => !weights.has(name));
  if (missing.length > 0) {
    throw new UserError(
      `${directory.path} lacks ${missing.length} weights, first ${missing[0]}; download the model again`,
    );
  }
  return weights;
}

const ShardIndex = z.object({ weight_map: z.record(z.string(), z.string()) });

/** The files that hold the weights: one, or the shards that an index names. */
async function weightFiles(path: string): Promise<string[]> {
  if (existsSync(join(path, 'model.safetensors'))) return ['model.safetensors'];
  const indexPath = join(path, 'model.safetensors.index.json');
  if (!existsSync(indexPath)) {
    throw new UserError(`${path} has no model.safetensors; name a complete model directory`);
  }
  const index = ShardIndex.safeParse(JSON.parse(await readText(indexPath)));
  if (!index.success) throw new UserError(`${indexPath}: ${z.prettifyError(index.error)}`);
  const files = [...new Set(Object.values(index.data.weight_map))].sort();
  const escaping = files.find((file) => file.includes('/') || file.includes('\\'));
  if (escaping !== undefined) {
    throw new UserError(`${indexPath} names ${escaping}, which is outside the model directory`);
  }
  return files;
}

async function readText(path: string): Promise<string> {
  return new TextDecoder().decode(await readBytes(path));
}

async function readBytes(path: string): Promise<Uint8Array> {
  try {
    return await readFile(path);
  } catch (cause) {
    throw new UserError(
      `cannot read ${path} (${errorText(cause)}); name a Hugging Face model directory`,
      { cause },
    );
  }
}

/** The folder with package.json: this file runs from dist/ as well as from the sources. */
function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder);
  return folder;
}
