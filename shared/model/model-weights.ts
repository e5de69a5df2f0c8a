import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { errorText, UserError } from '../base/errors.js';
import { readJson } from '../base/read-json.js';
import type { ModelConfig } from './model-config.js';
import { parameterShapes } from './parameters.js';
import { SafetensorsFile } from './safetensors-file.js';
import type { Tensor, TensorPlace } from './safetensors.js';
import type { FileRange } from './graph/graph.js';

/** The path of a model's files and its configuration. */
export interface ModelFolder {
  readonly path: string;
  readonly config: ModelConfig;
}

/** A tensor in a file, which is read when a session is created. */
export interface StoredTensor extends Pick<TensorPlace, 'dtype' | 'dims'> {
  readonly data: FileRange;
}

const head = 'lm_head.weight';
const embedding = 'model.embed_tokens.weight';

/**
 * Checks from the file headers that every weight exists with the expected shape.
 *
 * @throws {UserError} naming the weight or the file that is wrong.
 */
export async function checkWeights({ path, config }: ModelFolder): Promise<void> {
  const missing = new Set(parameterShapes(config).keys());
  const fileOf = new Map<string, string>();
  for await (const file of weightFiles({ path, config })) {
    for (const name of file.tensors.keys()) {
      missing.delete(name);
      fileOf.set(name, file.path);
    }
  }
  const [first] = missing;
  if (first !== undefined) {
    throw new UserError(
      `${path} lacks ${missing.size} weights, first ${first}; download the model again`,
    );
  }
  if (!config.hasTiedHead || !fileOf.has(head)) return;
  const digest = (name: string) => tensorDigest(fileOf.get(name)!, name);
  // Programs differ in which of the two they read.
  if ((await digest(head)) !== (await digest(embedding))) {
    throw new UserError(
      `${join(path, 'config.json')}: tie_word_embeddings is true, but ${head} differs from ${embedding}; set it to false if the model has a separate head, else remove ${head}`,
    );
  }
}

/**
 * Reads every weight of the model as float32, by its Hugging Face name.
 *
 * @throws {UserError} if a file is broken, or the shape of a weight contradicts config.json.
 */
export async function readWeights(directory: ModelFolder): Promise<Map<string, Tensor>> {
  const wanted = parameterShapes(directory.config);
  const weights = new Map<string, Tensor>();
  for await (const file of weightFiles(directory)) {
    for (const [name, { dims }] of file.tensors) {
      if (!wanted.has(name)) continue; // such as a tied head that was stored anyway
      weights.set(name, { dims, data: await file.read(name) });
    }
  }
  return weights;
}

/**
 * Finds every weight of the model in its files, by its Hugging Face name, without reading any.
 *
 * @throws {UserError} if a file is broken, or the shape of a weight contradicts config.json.
 */
export async function storedWeights(directory: ModelFolder): Promise<Map<string, StoredTensor>> {
  const wanted = parameterShapes(directory.config);
  const weights = new Map<string, StoredTensor>();
  for await (const file of weightFiles(directory)) {
    const path = resolve(file.path);
    for (const [name, { dtype, dims, begin, end }] of file.tensors) {
      if (wanted.has(name)) weights.set(name, { dtype, dims, data: { path, begin, end } });
    }
  }
  return weights;
}

/** The paths of the files that hold a directory's weights: one, or the shards that an index names. */
export async function weightPaths(path: string): Promise<string[]> {
  const single = join(path, 'model.safetensors');
  if (existsSync(single)) return [single];
  const indexPath = join(path, 'model.safetensors.index.json');
  if (!existsSync(indexPath)) {
    throw new UserError(
      `${path} has no model.safetensors; name a complete model directory, whose weights are safetensors`,
    );
  }
  const files = [...new Set(Object.values(await readIndex(indexPath)))].sort();
  const escaping = files.find((file) => file.includes('/') || file.includes('\\'));
  if (escaping !== undefined) {
    throw new UserError(`${indexPath} names ${escaping}, which is outside the model directory`);
  }
  return files.map((file) => join(path, file));
}

const ShardIndex = z.object({ weight_map: z.record(z.string(), z.string()) });

async function readIndex(path: string): Promise<Record<string, string>> {
  try {
    return ShardIndex.parse(await readJson(path)).weight_map;
  } catch (cause) {
    throw new UserError(
      `${path} is no index of shards (${errorText(cause)}); download the model again`,
      { cause },
    );
  }
}

/** The weight files, opened one at a time, after checking the shapes in each. */
async function* weightFiles({ path, config }: ModelFolder): AsyncGenerator<SafetensorsFile> {
  const wanted = parameterShapes(config);
  for (const filePath of await weightPaths(path)) {
    await using file = await openFile(filePath);
    for (const [name, { dims }] of file.tensors) {
      const shape = wanted.get(name);
      if (shape !== undefined && shape.join() !== dims.join()) {
        throw new UserError(
          `${filePath}: ${name} has shape [${dims.join()}], but config.json makes it [${shape.join()}]`,
        );
      }
    }
    yield file;
  }
}

async function openFile(path: string): Promise<SafetensorsFile> {
  try {
    return await SafetensorsFile.open(path);
  } catch (cause) {
    throw new UserError(`${errorText(cause)}; download the model again, unquantized`, { cause });
  }
}

/** The digest of one tensor, read in pieces. */
async function tensorDigest(path: string, name: string): Promise<string> {
  await using file = await openFile(path);
  const hash = createHash('sha256').update(file.tensors.get(name)!.dtype);
  for await (const piece of file.pieces(name)) hash.update(piece);
  return hash.digest('hex');
}
