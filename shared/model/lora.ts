import { PermanentError } from '../base/errors.js';
import { createRandom } from '../base/random.js';
import type { ModelConfig } from './model-config.js';
import { linearModules } from './parameters.js';
import {
  encodeHeader,
  encodeSafetensors,
  firstNotFinite,
  parseSafetensors,
  toBfloat16,
  toFloat32,
  type Tensor,
  type TensorPlace,
} from './safetensors.js';

/** Alpha of an adapter that is given none: as in TuFT, which scales the update by 2 at every rank. */
export const usualAlpha = (rank: number): number => 2 * rank;

/** A LoRA adapter: the weights that RL trains, and the content of a policy version. */
export interface Adapter {
  readonly rank: number;
  readonly alpha: number; // the update is alpha / rank · B·A
  /** `layers.0.self_attn.q_proj.lora_A` [rank, in] and `….lora_B` [out, rank], in layer order. */
  readonly tensors: ReadonlyMap<string, Tensor>;
}

export interface AdapterOptions {
  readonly rank: number;
  readonly alpha: number;
  readonly seed: number;
  readonly attn: boolean; // adapt query, key, value and output projections
  readonly mlp: boolean; // adapt gate, up and down projections
}

/**
 * A new adapter, which does not change the model yet: A is Kaiming-uniform, B is zero, as in PEFT.
 *
 * @throws {PermanentError} if neither attention nor the MLP is adapted.
 */
export function createAdapter(config: ModelConfig, options: AdapterOptions): Adapter {
  const { rank, alpha, seed, attn, mlp } = options;
  const modules = linearModules(config).filter(({ group }) => (group === 'attn' ? attn : mlp));
  if (modules.length === 0) {
    throw new PermanentError('an adapter needs train_attn or train_mlp; both are false');
  }
  const random = createRandom(`lora ${seed}`);
  const tensors = new Map<string, Tensor>();
  for (let layer = 0; layer < config.numLayers; layer++) {
    for (const { module, out, in: width } of modules) {
      const key = `layers.${layer}.${module}`;
      const bound = 1 / Math.sqrt(width); // Kaiming-uniform with a = sqrt(5)
      const a = Float32Array.from({ length: rank * width }, () => (random.next() * 2 - 1) * bound);
      tensors.set(`${key}.lora_A`, { dims: [rank, width], data: a });
      tensors.set(`${key}.lora_B`, { dims: [out, rank], data: new Float32Array(out * rank) });
    }
  }
  return { rank, alpha, tensors };
}

/** The empty adapter: the base policy. */
export const noAdapter: Adapter = { rank: 1, alpha: 1, tensors: new Map() };

const peftPrefix = 'base_model.model.model.';

/** The adapter in PEFT's layout: `adapter_model.safetensors` and the text of `adapter_config.json`. */
export function encodeAdapter(
  adapter: Adapter,
  baseModel = '',
): { safetensors: Uint8Array; config: string } {
  const named = [...adapter.tensors].map(
    ([key, tensor]) => [`${peftPrefix}${key}.weight`, tensor] as const,
  );
  const modules = [...adapter.tensors.keys()].map((key) => key.split('.').at(-2)!);
  return {
    safetensors: encodeSafetensors(new Map(named), { format: 'pt' }),
    config: peftConfig(adapter, modules, baseModel),
  };
}

/** The text of a PEFT `adapter_config.json`, for an adapter of these modules: q_proj and so on. */
export function peftConfig(
  { rank, alpha }: Pick<Adapter, 'rank' | 'alpha'>,
  modules: Iterable<string>,
  baseModel = '',
): string {
  const config = {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: baseModel,
    r: rank,
    lora_alpha: alpha,
    lora_dropout: 0,
    bias: 'none',
    fan_in_fan_out: false,
    inference_mode: true,
    target_modules: [...new Set(modules)],
  };
  return `${JSON.stringify(config, undefined, 2)}\n`;
}

/**
 * The modules that a PEFT `adapter_model.safetensors` adapts: q_proj and so on.
 *
 * @throws {PermanentError} when the file is broken, holds something other than LoRA, or is not of this rank.
 */
export function adaptedModules(safetensors: Uint8Array, rank: number): Set<string> {
  const modules = new Set<string>();
  for (const [name, { dims }] of parseSafetensors(safetensors, 'the adapter')) {
    const [, module, factor] = /([^.]+)\.lora_([AB])\.weight$/.exec(name) ?? [];
    if (module === undefined)
      throw new PermanentError(`the adapter holds ${name}, which is not LoRA`);
    if (dims.length !== 2 || dims[factor === 'A' ? 0 : 1] !== rank) {
      throw new PermanentError(
        `the adapter's ${name} has shape [${dims.join()}], not rank ${rank}`,
      );
    }
    modules.add(module);
  }
  if (modules.size === 0) throw new PermanentError('the adapter is empty');
  return modules;
}

/**
 * Reads the adapter in a PEFT `adapter_model.safetensors`.
 *
 * @throws {PermanentError} when the file is broken, or its matrices do not pair up at this rank.
 */
export function decodeAdapter(
  safetensors: Uint8Array,
  { rank, alpha }: { rank: number; alpha: number },
): Adapter {
  const tensors = new Map<string, Tensor>();
  for (const [name, entry] of parseSafetensors(safetensors, 'the adapter')) {
    const key = /^base_model\.model\.model\.(layers\.\d+\..+\.lora_[AB])\.weight$/.exec(name)?.[1];
    if (key === undefined) {
      throw new PermanentError(`the adapter holds ${name}, which is not LoRA of a layer's module`);
    }
    const rankAxis = key.endsWith('A') ? 0 : 1;
    if (entry.dims.length !== 2 || entry.dims[rankAxis] !== rank) {
      throw new PermanentError(
        `the adapter's ${name} has shape [${entry.dims.join()}], not rank ${rank}`,
      );
    }
    tensors.set(key, { dims: entry.dims, data: toFloat32(entry) });
  }
  for (const key of tensors.keys()) {
    const partner = key.replace(/[AB]$/, (letter) => (letter === 'A' ? 'B' : 'A'));
    if (!tensors.has(partner)) throw new PermanentError(`the adapter lacks ${partner}`);
  }
  if (tensors.size === 0) throw new PermanentError('the adapter is empty');
  // PEFT's files have layer 10 before layer 2.
  const ordered = [...tensors].sort(([a], [b]) => layerOf(a) - layerOf(b));
  return { rank, alpha, tensors: new Map(ordered) };
}

/**
 * The number format of the weights in an `adapter_model.safetensors`, by its name there; undefined if it has several.
 *
 * @throws {PermanentError} when the file is broken.
 */
export function weightFormat(safetensors: Uint8Array): TensorPlace['dtype'] | undefined {
  const entries = parseSafetensors(safetensors, 'the adapter').values();
  const [format, ...others] = new Set(Array.from(entries, ({ dtype }) => dtype));
  return others.length === 0 ? format : undefined;
}

/**
 * The same `adapter_model.safetensors` with its weights in bfloat16, each rounded to the nearest, ties to even, as torch does.
 * Weights that are in bfloat16 already stay as they are. Yields to other work after each tensor.
 *
 * @throws {PermanentError} when the file is broken.
 */
export async function roundToBfloat16(safetensors: Uint8Array): Promise<Uint8Array> {
  const entries = [...parseSafetensors(safetensors, 'the adapter')];
  if (entries.every(([, { dtype }]) => dtype === 'BF16')) return safetensors;
  const places = entries.map(([name, { dims }]) => [name, { dtype: 'BF16', dims }] as const);
  const start = encodeHeader(places, { format: 'pt' });
  const weights = entries.reduce((sum, [, { dims }]) => sum + dims.reduce((a, b) => a * b, 1), 0);
  const file = new Uint8Array(start.byteLength + 2 * weights);
  file.set(start);
  let at = start.byteLength;
  for (const [, entry] of entries) {
    const { dtype, bytes } = entry;
    const words = dtype === 'BF16' ? undefined : toBfloat16(toFloat32(entry));
    const rounded = words === undefined ? bytes : new Uint8Array(words.buffer);
    file.set(rounded, at);
    at += rounded.byteLength;
    await new Promise(setImmediate);
  }
  return file;
}

/** Weights that are NaN or infinite; sampling with them gives tokens without finite logprobs. */
export class WeightsNotFinite extends PermanentError {
  override readonly name = 'WeightsNotFinite';
}

/**
 * Checks that each weight of an `adapter_model.safetensors` (float32, float16 or bfloat16) is finite.
 * Yields to other work after each tensor.
 *
 * @throws {WeightsNotFinite} naming the first weight that is not finite.
 * @throws {PermanentError} when the file is broken.
 */
export async function requireFinite(safetensors: Uint8Array): Promise<void> {
  for (const [name, entry] of parseSafetensors(safetensors, 'the adapter')) {
    const place = firstNotFinite(entry);
    if (place !== undefined) {
      const { dtype, dims, bytes } = entry;
      const [value] = toFloat32({ dtype, dims, bytes: elementOf(bytes, place, dtype) });
      throw new WeightsNotFinite(
        `the adapter's ${name} is not finite: element ${place} of [${dims.join()}] is ${value}`,
      );
    }
    await new Promise(setImmediate);
  }
}

function elementOf(bytes: Uint8Array, place: number, dtype: 'F32' | 'F16' | 'BF16'): Uint8Array {
  const size = dtype === 'F32' ? 4 : 2;
  return bytes.subarray(place * size, (place + 1) * size);
}

/**
 * Checks that an adapter fits a model.
 *
 * @throws {PermanentError} if a matrix is not one of the model's, or a module is not adapted in all layers.
 */
export function checkAdapter(adapter: Adapter, config: ModelConfig): void {
  const expected = new Map<string, string>();
  const { rank } = adapter;
  for (let layer = 0; layer < config.numLayers; layer++) {
    for (const { module, out, in: width } of linearModules(config)) {
      expected.set(`layers.${layer}.${module}.lora_A`, `[${rank},${width}]`);
      expected.set(`layers.${layer}.${module}.lora_B`, `[${out},${rank}]`);
    }
  }
  for (const [key, { dims }] of adapter.tensors) {
    const shape = expected.get(key);
    if (shape !== `[${dims.join()}]`) {
      throw new PermanentError(
        `the adapter's ${key} is [${dims.join()}], but ${shape ?? 'absent'} in this model; it belongs to another`,
      );
    }
  }
  const ofModule = (key: string) => key.replace(/^layers\.\d+/, '');
  const adapted = new Set([...adapter.tensors.keys()].map(ofModule));
  const gap = [...expected.keys()].find(
    (key) => adapted.has(ofModule(key)) && !adapter.tensors.has(key),
  );
  if (gap !== undefined) {
    throw new PermanentError(
      `the adapter lacks ${gap}: a module is adapted in all layers or in none`,
    );
  }
}

function layerOf(key: string): number {
  return Number(key.split('.')[1]);
}
