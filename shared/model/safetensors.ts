import { z } from 'zod';
import { PermanentError } from '../errors.js';

/** A tensor in memory, in C order. */
export interface Tensor {
  readonly dims: readonly number[];
  readonly data: Float32Array; // as many elements as the product of dims
}

/** Where a tensor lies in a safetensors file. */
export interface TensorEntry {
  readonly dtype: 'F32' | 'F16' | 'BF16';
  readonly dims: readonly number[];
  /** Its bytes, as a view into the file. */
  readonly bytes: Uint8Array;
}

const bytesPerElement = { F32: 4, F16: 2, BF16: 2 } as const;
const maxHeaderBytes = 100_000_000; // the reference reader's own bound

const Header = z.record(
  z.string(),
  z.object({
    dtype: z.string(),
    shape: z.array(z.int().nonnegative()),
    data_offsets: z.tuple([z.int().nonnegative(), z.int().nonnegative()]),
  }),
);

/**
 * The tensors of a safetensors file: 8 bytes header length (little-endian), a JSON header, the data.
 *
 * @param name the file, for errors.
 * @throws {PermanentError} when a length, offset or dtype does not fit the file.
 */
export function parseSafetensors(file: Uint8Array, name: string): Map<string, TensorEntry> {
  const refuse = (why: string): never => {
    throw new PermanentError(`${name} is not a valid safetensors file: ${why}`);
  };
  if (file.byteLength < 8) return refuse(`it has ${file.byteLength} bytes`);
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const headerBytes = Number(view.getBigUint64(0, true));
  if (headerBytes > maxHeaderBytes || 8 + headerBytes > file.byteLength) {
    return refuse(`its header claims ${headerBytes} of ${file.byteLength} bytes`);
  }
  const header = parseHeader(file.subarray(8, 8 + headerBytes), refuse);
  const data = file.subarray(8 + headerBytes);

  const entries = new Map<string, TensorEntry>();
  for (const [key, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (dtype !== 'F32' && dtype !== 'F16' && dtype !== 'BF16') {
      return refuse(`tensor ${key} has dtype ${dtype}; F32, F16 and BF16 can be read`);
    }
    const [begin, end] = data_offsets;
    const expected = shape.reduce((product, dim) => product * dim, bytesPerElement[dtype]);
    if (begin > end || end > data.byteLength || end - begin !== expected) {
      return refuse(`tensor ${key} lies at ${begin}..${end} of ${data.byteLength} bytes`);
    }
    entries.set(key, { dtype, dims: shape, bytes: data.subarray(begin, end) });
  }
  return entries;
}

function parseHeader(bytes: Uint8Array, refuse: (why: string) => never): z.infer<typeof Header> {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    return refuse('its header is not JSON');
  }
  if (typeof json !== 'object' || json === null) return refuse('its header is not an object');
  const { __metadata__: _, ...tensors } = json as Record<string, unknown>;
  const parsed = Header.safeParse(tensors);
  return parsed.success
    ? parsed.data
    : refuse(`its header is wrong: ${z.prettifyError(parsed.error)}`);
}

/** The elements of an entry as float32, in memory of their own. Half precision is widened exactly. */
export function toFloat32({ dtype, bytes }: TensorEntry): Float32Array {
  const copy = new Uint8Array(bytes).buffer; // not slice(): a Buffer's slice copies nothing
  if (dtype === 'F32') return new Float32Array(copy);
  const halves = new Uint16Array(copy);
  if (dtype === 'F16') return Float32Array.from(halves, halfToFloat);
  const words = new Uint32Array(halves.length);
  for (let i = 0; i < halves.length; i++) words[i] = halves[i]! << 16; // bf16 is float32's upper half
  return new Float32Array(words.buffer);
}

/** A safetensors file of float32 tensors, in the order given. */
export function encodeSafetensors(
  tensors: ReadonlyMap<string, Tensor>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array {
  const header: Record<string, unknown> = { __metadata__: metadata };
  let offset = 0;
  for (const [key, { dims, data }] of tensors) {
    header[key] = { dtype: 'F32', shape: dims, data_offsets: [offset, offset + data.byteLength] };
    offset += data.byteLength;
  }
  const json = JSON.stringify(header);
  const padded = new TextEncoder().encode(json.padEnd(Math.ceil(json.length / 8) * 8));
  const file = new Uint8Array(8 + padded.byteLength + offset);
  new DataView(file.buffer).setBigUint64(0, BigInt(padded.byteLength), true);
  file.set(padded, 8);
  let at = 8 + padded.byteLength;
  for (const { data } of tensors.values()) {
    file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    at += data.byteLength;
  }
  return file;
}

/** IEEE 754 binary16 to a number. */
function halfToFloat(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
