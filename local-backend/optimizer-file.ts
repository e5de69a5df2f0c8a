import { PermanentError } from '../shared/base/errors.js';
import type { Moments } from '../shared/model/adamw.js';
import {
  encodeSafetensors,
  parseSafetensors,
  toFloat32,
  type Tensor,
} from '../shared/model/safetensors.js';

/** AdamW's moments as safetensors: `first.<key>` and `second.<key>` like the parameter, and `step`. */
export function encodeMoments(
  parameters: ReadonlyMap<string, Tensor>,
  moments: Moments,
): Uint8Array {
  const tensors = new Map<string, Tensor>([
    ['step', { dims: [1], data: Float32Array.of(moments.step) }], // exact below 2^24
  ]);
  for (const [key, { dims }] of parameters) {
    tensors.set(`first.${key}`, { dims, data: moments.first.get(key)! });
    tensors.set(`second.${key}`, { dims, data: moments.second.get(key)! });
  }
  return encodeSafetensors(tensors);
}

/** @throws {PermanentError} when the file is broken or lacks a parameter's moments. */
export function decodeMoments(file: Uint8Array, parameters: ReadonlyMap<string, Tensor>): Moments {
  const entries = parseSafetensors(file, 'the optimizer file');
  const read = (name: string, length: number): Float32Array => {
    const entry = entries.get(name);
    const data = entry && toFloat32(entry);
    if (data?.length !== length) {
      throw new PermanentError(
        `the optimizer file has ${data?.length ?? 'no'} elements of ${name}, expected ${length}`,
      );
    }
    return data;
  };
  const moments = (order: 'first' | 'second') =>
    new Map([...parameters].map(([key, { data }]) => [key, read(`${order}.${key}`, data.length)]));
  return { step: read('step', 1)[0]!, first: moments('first'), second: moments('second') };
}
