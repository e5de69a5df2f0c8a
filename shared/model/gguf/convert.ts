import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { UserError } from '../../base/errors.js';
import { parseModelConfig } from '../model-config.js';
import { type TensorFacts, architectureOf, configsOf } from './gguf-config.js';
import { GgufFile } from './gguf-file.js';
import { tokenizerFilesOf } from './gguf-tokenizer.js';
import { weightSources, writeWeights } from './gguf-weights.js';

/** What a GGUF file says about itself. */
interface GgufFacts {
  readonly name: string | undefined;
  readonly license:
    | { readonly id: string; readonly name?: string; readonly link?: string }
    | undefined;
  /** How many tensors have each format: `{Q4_1: 210, F32: 61}`. */
  readonly formats: Readonly<Record<string, number>>;
}

/**
 * Writes the model of a GGUF file into an existing folder as a Hugging Face directory: config.json,
 * generation_config.json, tokenizer and chat template, and last the weights, unquantized.
 *
 * @throws {UserError} before the weights are written, naming what of the model cannot be read or run.
 */
export async function convertGguf(
  path: string,
  folder: string,
  dtype: 'bf16' | 'fp32',
): Promise<GgufFacts> {
  await using file = await GgufFile.open(path);
  const { metadata, tensors } = file;
  architectureOf(metadata, path); // before what is missing in other architectures
  const embedding = tensors.get('token_embd.weight');
  if (embedding === undefined)
    throw new UserError(`${path} has no token_embd.weight; is it a part of a model?`);
  const facts: TensorFacts = {
    vocabSize: embedding.dims[0]!,
    has: (name) => tensors.has(name),
    ropeFactors: await ropeFactorsOf(file),
  };
  const torchType = dtype === 'bf16' ? 'bfloat16' : 'float32';
  const { config, generation } = configsOf(metadata, facts, torchType, path);
  const text = `${JSON.stringify(config, undefined, 2)}\n`;
  const model = parseModelConfig(text, `${path} as config.json`);
  const sources = weightSources(tensors, model, path);
  const files = {
    'config.json': text,
    'generation_config.json': `${JSON.stringify(generation, undefined, 2)}\n`,
    ...tokenizerFilesOf(metadata, model.maxPositions, path),
  };
  for (const [name, content] of Object.entries(files)) await writeFile(join(folder, name), content);
  await writeWeights(
    file,
    sources,
    dtype === 'bf16' ? 'BF16' : 'F32',
    join(folder, 'model.safetensors'),
  );
  return factsOf(file);
}

async function ropeFactorsOf(file: GgufFile): Promise<Float32Array | undefined> {
  const tensor = file.tensors.get('rope_freqs.weight');
  if (tensor === undefined) return undefined;
  const { format, dims, begin } = tensor;
  const blocks = dims.reduce((product, dim) => product * dim, 1 / format.elements);
  return format.decode(await file.read(begin, begin + blocks * format.bytes));
}

function factsOf({ metadata, tensors }: GgufFile): GgufFacts {
  const text = (key: string) => {
    const value = metadata[key];
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  const formats: Record<string, number> = {};
  for (const { format } of tensors.values()) formats[format.name] = (formats[format.name] ?? 0) + 1;
  const [id, name, link] = ['', '.name', '.link'].map((part) => text(`general.license${part}`));
  const license =
    id === undefined
      ? undefined
      : { id, ...(name !== undefined && { name }), ...(link !== undefined && { link }) };
  return { name: text('general.name'), license, formats };
}
