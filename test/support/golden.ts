import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { decodeAdapter, type Adapter } from '../../shared/model/lora.js';
import { readModelDirectory, type ModelDirectory } from '../../shared/model/model-directory.js';
import { parseSafetensors, toFloat32 } from '../../shared/model/safetensors.js';

/** The files written by test/compat/golden, which are with the sources, not in dist/. */
export const goldenFolder = fileURLToPath(
  new URL('../../../test/shared/model/golden/', import.meta.url),
);

export interface GoldenModel {
  readonly directory: ModelDirectory;
  readonly adapter: Adapter;
  readonly sequences: readonly Int32Array[];
  readonly temperature: number;
  /** An array of values.safetensors by its name. */
  readonly value: (name: string) => Float32Array;
}

const Facts = z.object({ tokens: z.array(z.array(z.int())), temperature: z.number() });
const PeftConfig = z.object({ r: z.int(), lora_alpha: z.number() });

export async function readGoldenModel(variant: string): Promise<GoldenModel> {
  const folder = `${goldenFolder}${variant}`;
  const json = async (file: string): Promise<unknown> =>
    JSON.parse(await readFile(`${folder}/${file}`, 'utf8'));
  const { tokens, temperature } = Facts.parse(await json('facts.json'));
  const { r: rank, lora_alpha: alpha } = PeftConfig.parse(
    await json('adapter/adapter_config.json'),
  );
  return {
    directory: await readModelDirectory(`${folder}/model`),
    adapter: decodeAdapter(await readFile(`${folder}/adapter/adapter_model.safetensors`), {
      rank,
      alpha,
    }),
    sequences: tokens.map((sequence) => Int32Array.from(sequence)),
    temperature,
    value: await readValues(`${folder}/values.safetensors`),
  };
}

/** The arrays of a safetensors file by their names. */
export async function readValues(path: string): Promise<(name: string) => Float32Array> {
  const entries = parseSafetensors(await readFile(path), path);
  return (name) => {
    const entry = entries.get(name);
    if (entry === undefined) throw new Error(`${path} has no ${name}`);
    return toFloat32(entry);
  };
}

/** max |a - b|; infinite when the lengths differ or a number is not finite. */
export function greatestDifference(a: Float32Array, b: Float32Array): number {
  if (a.length !== b.length) return Infinity;
  return a.reduce((worst, x, i) => {
    const difference = Math.abs(x - b[i]!);
    return difference <= worst ? worst : Number.isNaN(difference) ? Infinity : difference;
  }, 0);
}
