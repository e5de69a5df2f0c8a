import { createHash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { errorText, UserError } from '../base/errors.js';
import { packageRoot } from '../base/package-root.js';
import { readJson } from '../base/read-json.js';
import { readChatTemplate } from './chat-template.js';
import { type ModelConfig, parseModelConfig } from './model-config.js';
import { checkWeights, weightPaths, type ModelFolder } from './model-weights.js';

/** A Hugging Face directory with a supported model. */
export interface ModelDirectory extends ModelFolder {
  /** SHA-256 over configuration, tokenizer, generation configuration, weights and chat template: two processes with one digest hold one model. */
  readonly digest: string;
  /** By the name of each file of `digestWithoutTemplate`: its size and times, which change when it is written. */
  readonly stamps: ReadonlyMap<string, string>;
  /** The same without the chat template, which changes what a model is asked and not what it answers. */
  readonly digestWithoutTemplate: string;
}

const generationFile = 'generation_config.json';

/** The small model that ships with the project. */
export const embeddedModelPath = join(packageRoot, 'shared', 'model', 'base');

/** The part of generation_config.json that decides where an answer ends. */
const GenerationConfig = z.object({
  eos_token_id: z.union([z.int().nonnegative(), z.array(z.int().nonnegative())]).nullish(),
});

/**
 * Reads `config.json` and checks that tokenizer and weights exist and fit, without reading the weights.
 *
 * @throws {UserError} naming the missing file, the weight, or the key of config.json that is not supported.
 */
export async function checkModelDirectory(path: string): Promise<ModelFolder> {
  const config = await readModelConfig(path);
  await readText(join(path, 'tokenizer.json'));
  await checkWeights({ path, config });
  return { path, config };
}

/**
 * Reads the configuration of a model, with the tokens that end its sequences.
 *
 * @throws {UserError} naming the file or the key that is missing or not supported.
 */
export async function readModelConfig(path: string): Promise<ModelConfig> {
  const configPath = join(path, 'config.json');
  const config = parseModelConfig(await readText(configPath), configPath);
  const eosTokenIds = (await generationEosTokenIds(path)) ?? config.eosTokenIds;
  return { ...config, eosTokenIds };
}

/**
 * The end-of-sequence ids of generation_config.json, which count instead of config.json's, as in
 * transformers: instruction-tuned models name more of them there. Undefined if it names none.
 */
async function generationEosTokenIds(path: string): Promise<number[] | undefined> {
  const file = join(path, generationFile);
  if (!existsSync(file)) return undefined;
  try {
    const { eos_token_id: ids } = GenerationConfig.parse(await readJson(file));
    return ids === undefined || ids === null ? undefined : [ids].flat();
  } catch (cause) {
    throw new UserError(
      `${file} is not usable (${errorText(cause)}); eos_token_id must be one token id or a list of them`,
      { cause },
    );
  }
}

/**
 * Checks a model directory and computes its digest, which reads every byte.
 *
 * @throws {UserError} as `checkModelDirectory` does.
 */
export async function readModelDirectory(path: string): Promise<ModelDirectory> {
  const checked = await checkModelDirectory(path);
  const stamps = await stampsOf(path); // before the content, so that a later write is noticed
  const hash = createHash('sha256');
  for (const file of textFiles(path)) hash.update(await readText(join(path, file)));
  for (const file of await weightPaths(path)) {
    for await (const piece of createReadStream(file, { highWaterMark: 2 ** 20 })) {
      hash.update(piece as Buffer);
    }
  }
  const digestWithoutTemplate = hash.copy().digest('hex');
  hash.update((await readChatTemplate(path)) ?? '');
  return { ...checked, digest: hash.digest('hex'), digestWithoutTemplate, stamps };
}

/**
 * Makes sure that a directory still holds what was read: of two threads that read it at different times, both must have
 * the same model. It costs no more than a look at the files' times, unless one of them was written or moved.
 *
 * @throws {UserError} naming the directory and the files that have changed.
 */
export async function assertUnchanged(model: ModelDirectory): Promise<void> {
  const { path, stamps } = model;
  const refusal = (what: string, options?: ErrorOptions) =>
    new UserError(
      `the model directory ${path} has changed since the server started: ${what}; put the former files back, or restart ` +
        'the server to use the new ones',
      options,
    );
  let changed: string[];
  try {
    const found = await stampsOf(path);
    changed = [...new Set([...stamps.keys(), ...found.keys()])].filter(
      (file) => stamps.get(file) !== found.get(file),
    );
    if (changed.length === 0) return;
    const { digestWithoutTemplate } = await readModelDirectory(path);
    if (digestWithoutTemplate === model.digestWithoutTemplate) return;
  } catch (cause) {
    throw refusal(errorText(cause), { cause });
  }
  throw refusal(`other content in ${changed.sort().join(', ')}`);
}

/** The files besides weights and chat template. */
function textFiles(path: string): string[] {
  const always = ['config.json', 'tokenizer.json'];
  return existsSync(join(path, generationFile)) ? [...always, generationFile] : always;
}

async function stampsOf(path: string): Promise<Map<string, string>> {
  const stamps = new Map<string, string>();
  for (const file of [
    ...textFiles(path).map((name) => join(path, name)),
    ...(await weightPaths(path)),
  ]) {
    // The time of the last change to the inode cannot be set, unlike that of the content.
    const { size, mtimeNs, ctimeNs } = await stat(file, { bigint: true });
    stamps.set(basename(file), `${size} ${mtimeNs} ${ctimeNs}`);
  }
  return stamps;
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
