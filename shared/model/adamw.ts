import type { AdamParams } from '../rl/adam-params.js';
import { PermanentError } from '../base/errors.js';
import { encodeSafetensors, parseSafetensors, type Tensor, toFloat32 } from './safetensors.js';

/** Gradients accumulated since the last step, by parameter, each in its parameter's shape. */
export type Gradients = Map<string, Float32Array>;

/** The AdamW state of each parameter. */
export interface Moments {
  step: number;
  readonly first: Map<string, Float32Array>;
  readonly second: Map<string, Float32Array>;
}

export function freshMoments(parameters: ReadonlyMap<string, Tensor>): Moments {
  const zeros = () =>
    new Map([...parameters].map(([key, { data }]) => [key, new Float32Array(data.length)]));
  return { step: 0, first: zeros(), second: zeros() };
}

/**
 * One AdamW step, in place: parameters and moments change, gradients are left as they are.
 *
 * Source: Loshchilov & Hutter 2017, arXiv:1711.05101, as PyTorch's AdamW computes it.
 *
 * @returns the global norm of the gradients before clipping.
 */
export function adamWStep(
  parameters: ReadonlyMap<string, Tensor>,
  gradients: Gradients,
  moments: Moments,
  { learningRate, beta1, beta2, eps, weightDecay, gradClipNorm }: AdamParams,
): { gradNorm: number } {
  const gradNorm = globalNorm(gradients);
  const clip = gradClipNorm > 0 && gradNorm > gradClipNorm ? gradClipNorm / (gradNorm + 1e-6) : 1;

  moments.step += 1;
  const correction1 = 1 - beta1 ** moments.step;
  const correction2 = Math.sqrt(1 - beta2 ** moments.step);
  for (const [key, { data }] of parameters) {
    const gradient = gradients.get(key);
    if (gradient === undefined) continue;
    const m = moments.first.get(key)!;
    const v = moments.second.get(key)!;
    for (let i = 0; i < data.length; i++) {
      const g = gradient[i]! * clip;
      m[i] = beta1 * m[i]! + (1 - beta1) * g;
      v[i] = beta2 * v[i]! + (1 - beta2) * g * g;
      const denominator = Math.sqrt(v[i]!) / correction2 + eps;
      data[i] =
        data[i]! * (1 - learningRate * weightDecay) -
        ((learningRate / correction1) * m[i]!) / denominator;
    }
  }
  return { gradNorm };
}

/** The Euclidean norm over all gradients together. */
export function globalNorm(gradients: Gradients): number {
  let sum = 0;
  for (const gradient of gradients.values()) {
    for (const value of gradient) sum += value * value;
  }
  return Math.sqrt(sum);
}

/** Encodes AdamW's moments as safetensors: `first.<key>` and `second.<key>`, shaped like the parameter, and `step`. */
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

/** @throws {PermanentError} when the file is corrupt or lacks a parameter's moments. */
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
