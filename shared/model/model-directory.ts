import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errorText, UserError } from '../base/errors.js';
import { packageRoot } from '../base/package-root.js';
import { parseModelConfig } from './model-config.js';
import { checkWeights, weightPaths, type ModelFolder } from './model-weights.js';

/** A Hugging Face directory with a supported model. */
export interface ModelDirectory extends ModelFolder {
  /** SHA-256 over configuration, weights and tokenizer; equal digests mean equal models. */
  readonly digest: string;
}

/** The small model that ships with the project. */
export const embeddedModelPath = join(packageRoot, 'shared', 'model', 'base');

/**
 * Reads `config.json` and checks that tokenizer and weights exist and fit, without reading the weights.
 *
 * @throws {UserError} naming the missing file, the weight, or the key of config.json that is not supported.
 */
export async function checkModelDirectory(path: string): Promise<ModelFolder> {
  const configPath = join(path, 'config.json');
  const config = parseModelConfig(await readText(configPath), configPath);
  await readText(join(path, 'tokenizer.json'));
  await checkWeights({ path, config });
  return { path, config };
}

/**
 * Checks a model directory and computes its digest, which reads every byte.
 *
 * @throws {UserError} as `checkModelDirectory` does.
 */
export async function readModelDirectory(path: string): Promise<ModelDirectory> {
  const checked = await checkModelDirectory(path);
  const hash = createHash('sha256');
  for (const file of ['config.json', 'tokenizer.json']) {
    hash.update(await readText(join(path, file)));
  }
  for (const file of await weightPaths(path)) {
    for await (const piece of createReadStream(file, { highWaterMark: 2 ** 20 })) {
      hash.update(piece as Buffer);
    }
  }
  return { ...checked, digest: hash.digest('hex') };
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    throw new UserError(
      `cannot read ${path} (${errorText(cause)}); name a Hugging Face model directory`,
      { cause },
    );
  }
}
