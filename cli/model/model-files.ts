import { statfs } from 'node:fs/promises';
import { UserError } from '../../shared/base/errors.js';
import { sizeText } from '../../shared/service/hub/download.js';

/** The text of a license. */
export const licensePattern = /^(licen[cs]e|notice)([.-][^/]*)?$/i;

const smallFiles = new Set([
  'config.json',
  'generation_config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.json',
  'merges.txt',
  'chat_template.jinja',
]);
const wholeWeights = 'model.safetensors';
const shardIndex = 'model.safetensors.index.json';
const shardPattern = /^model-[^/]*\.safetensors$/;

/** Whether `offbeat model get` writes files of this name. */
export function isModelFile(name: string): boolean {
  const isWeights = name === wholeWeights || name === shardIndex || shardPattern.test(name);
  return isWeights || smallFiles.has(name) || licensePattern.test(name);
}

/**
 * The files of a repository or folder that make its model, in the order in which to take them: config.json first, because
 * it decides whether the model can be run, and the weights last.
 *
 * @param names all file names; those in subfolders belong to other programs.
 * @throws {UserError} if something is missing, with what there is instead.
 */
export function modelFiles(names: readonly string[], where: string): string[] {
  const has = new Set(names);
  const lacks = (what: string, remedy: string): never => {
    throw new UserError(`${where} has no ${what}; ${remedy}`);
  };
  const gguf = names.find((name) => name.endsWith('.gguf'));
  const ofGguf =
    gguf === undefined
      ? 'choose a model in the layout of Hugging Face'
      : `download its ${gguf} and name that file, or choose the model that it was made from`;
  if (!has.has('config.json')) lacks('config.json', ofGguf);
  const shards = has.has(shardIndex) ? names.filter((name) => shardPattern.test(name)) : [];
  const weights = has.has(wholeWeights) ? [wholeWeights] : shards.sort();
  if (weights.length === 0) lacks('weights as safetensors', ofGguf);
  if (!has.has('tokenizer.json')) {
    lacks('tokenizer.json', 'load its tokenizer with transformers, which can save one');
  }
  const small = names.filter((name) => smallFiles.has(name) || licensePattern.test(name));
  const index = weights[0] === wholeWeights ? [] : [shardIndex];
  const rest = small.filter((name) => name !== 'config.json').sort();
  return ['config.json', ...rest, ...index, ...weights];
}

/** @throws {UserError} if so many bytes do not fit on the disk of a folder. */
export async function requireRoom(folder: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  if (bytes <= bavail * bsize) return;
  throw new UserError(
    `the model takes ${sizeText(bytes)}, but ${sizeText(bavail * bsize)} are free in ${folder}; ` +
      'delete something, or name another disk with --out',
  );
}
