import { z } from 'zod';
import { PermanentError } from '../base/errors.js';

/** A tensor in memory, in C order. */
export interface Tensor {
  readonly dims: readonly number[];
  readonly data: Float32Array; // as many elements as the product of dims
}

/** The position of a tensor in a safetensors file. */
export interface TensorPlace {
  readonly dtype: 'F32' | 'F16' | 'BF16';
  readonly dims: readonly number[];
  readonly begin: number; // its first byte, counted from the start of the file
  readonly end: number; // the byte after its last
}

/** A tensor's bytes, in C order and little-endian. */
interface TensorEntry extends Pick<TensorPlace, 'dtype' | 'dims'> {
  readonly bytes: Uint8Array;
}

const bytesPerElement = { F32: 4, F16: 2, BF16: 2 } as const;
const exponentBits = { F32: 0x7f800000, F16: 0x7c00, BF16: 0x7f80 } as const;
const maxHeaderBytes = 100_000_000; // the bound of the reference reader

const Header = z.record(
  z.string(),
  z.object({
    dtype: z.string(),
    shape: z.array(z.int().nonnegative()),
    data_offsets: z.tuple([z.int().nonnegative(), z.int().nonnegative()]),
  }),
);

/** Size in bytes of the header length at the start of a file. */
export const lengthBytes = 8;

/**
 * Reads the length of a safetensors file's header, which follows the length.
 *
 * @param start the file's first bytes.
 * @param name the file, for errors.
 * @throws {PermanentError} if the file cannot have such a header.
 */
export function headerLength(start: Uint8Array, fileBytes: number, name: string): number {
  if (fileBytes < lengthBytes) return refuse(name, `it has ${fileBytes} bytes`);
  const view = new DataView(start.buffer, start.byteOffset, lengthBytes);
  const length = Number(view.getBigUint64(0, true));
  if (length > maxHeaderBytes || lengthBytes + length > fileBytes) {
    return refuse(name, `its header claims ${length} of ${fileBytes} bytes`);
  }
  return length;
}

/**
 * Parses the tensors in a header.
 *
 * @param header its bytes, JSON.
 * @throws {PermanentError} when an offset, shape or dtype does not fit the file.
 */
export function parseHeader(
  header: Uint8Array,
  fileBytes: number,
  name: string,
): Map<string, TensorPlace> {
  const start = lengthBytes + header.byteLength;
  const dataBytes = fileBytes - start;
  const places = new Map<string, TensorPlace>();
  for (const [key, { dtype, shape, data_offsets }] of Object.entries(readHeader(header, name))) {
    if (dtype !== 'F32' && dtype !== 'F16' && dtype !== 'BF16') {
      return refuse(name, `tensor ${key} has dtype ${dtype}; F32, F16 and BF16 can be read`);
    }
    const [begin, end] = data_offsets;
    const expected = shape.reduce((product, dim) => product * dim, bytesPerElement[dtype]);
    if (begin > end || end > dataBytes || end - begin !== expected) {
      return refuse(name, `tensor ${key} lies at ${begin}..${end} of ${dataBytes} bytes`);
    }
    places.set(key, { dtype, dims: shape, begin: start + begin, end: start + end });
  }
  return places;
}

/**
 * Parses a safetensors file in memory; the tensors' bytes are views of it.
 *
 * @param name the file, for errors.
 * @throws {PermanentError} when a length, offset or dtype does not fit the file.
 */
export function parseSafetensors(file: Uint8Array, name: string): Map<string, TensorEntry> {
  const length = headerLength(file, file.byteLength, name);
  const header = file.subarray(lengthBytes, lengthBytes + length);
  return new Map(
    [...parseHeader(header, file.byteLength, name)].map(([key, { dtype, dims, begin, end }]) => [
      key,
      { dtype, dims, bytes: file.subarray(begin, end) },
    ]),
  );
}

function readHeader(bytes: Uint8Array, name: string): z.infer<typeof Header> {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    return refuse(name, 'its header is not JSON');
  }
  if (typeof json !== 'object' || json === null) refuse(name, 'its header is not an object');
  const { __metadata__: _, ...tensors } = json as Record<string, unknown>;
  const parsed = Header.safeParse(tensors);
  if (parsed.success) return parsed.data;
  const { path, message } = parsed.error.issues[0]!; // the first of perhaps thousands
  return refuse(name, `its header is wrong at ${path.join(' ')}: ${message}`);
}

function refuse(name: string, why: string): never {
  throw new PermanentError(`${name} is not a valid safetensors file: ${why}`);
}

/** [2^16] The number of every half-precision pattern, computed when first needed. */
let halfValues: Float32Array | undefined;

/** The elements of an entry as float32, in new memory. Half precision is widened exactly. */
export function toFloat32({ dtype, bytes }: TensorEntry): Float32Array {
  const copy = new Uint8Array(bytes).buffer; // not slice(): a Buffer's slice copies nothing
  if (dtype === 'F32') return new Float32Array(copy);
  const halves = new Uint16Array(copy);
  if (dtype === 'F16') {
    halfValues ??= Float32Array.from({ length: 2 ** 16 }, (_, half) => halfToFloat(half));
    const floats = new Float32Array(halves.length);
    for (let i = 0; i < halves.length; i++) floats[i] = halfValues[halves[i]!]!;
    return floats;
  }
  const words = new Uint32Array(halves.length);
  for (let i = 0; i < halves.length; i++) words[i] = halves[i]! << 16; // bf16 is float32's upper half
  return new Float32Array(words.buffer);
}

/**
 * The index of the first element that is NaN or infinite; undefined if all are finite. In all three formats
 * these are the numbers with all exponent bits set, so no conversion is needed.
 */
export function firstNotFinite({ dtype, bytes }: TensorEntry): number | undefined {
  const { byteOffset, byteLength } = bytes;
  const isAligned = byteOffset % bytesPerElement[dtype] === 0;
  const aligned = isAligned ? bytes : new Uint8Array(bytes); // a copy is aligned
  const start = isAligned ? byteOffset : 0;
  const length = byteLength / bytesPerElement[dtype];
  const mask = exponentBits[dtype];
  const words =
    dtype === 'F32'
      ? new Uint32Array(aligned.buffer, start, length)
      : new Uint16Array(aligned.buffer, start, length);
  for (let i = 0; i < length; i++) if ((words[i]! & mask) === mask) return i;
  return undefined;
}

/**
 * The start of a safetensors file: the header's length and the header. The tensors' bytes follow in the same order.
 * The header is padded, so that they are aligned.
 */
export function encodeHeader(
  tensors: Iterable<readonly [name: string, Pick<TensorPlace, 'dtype' | 'dims'>]>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array {
  const header: Record<string, unknown> = { __metadata__: metadata };
  let offset = 0;
  for (const [name, { dtype, dims }] of tensors) {
    const begin = offset;
    offset += dims.reduce((product, dim) => product * dim, bytesPerElement[dtype]);
    header[name] = { dtype, shape: dims, data_offsets: [begin, offset] };
  }
  const json = JSON.stringify(header);
  const padded = new TextEncoder().encode(json.padEnd(Math.ceil(json.length / 8) * 8));
  const start = new Uint8Array(lengthBytes + padded.byteLength);
  new DataView(start.buffer).setBigUint64(0, BigInt(padded.byteLength), true);
  start.set(padded, lengthBytes);
  return start;
}

/** Encodes float32 tensors as a safetensors file, in the given order. */
export function encodeSafetensors(
  tensors: ReadonlyMap<string, Tensor>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array {
  const entries = [...tensors].map(([name, { dims }]) => [name, { dtype: 'F32', dims }] as const);
  const start = encodeHeader(entries, metadata);
  const dataBytes = [...tensors.values()].reduce((sum, { data }) => sum + data.byteLength, 0);
  const file = new Uint8Array(start.byteLength + dataBytes);
  file.set(start);
  let at = start.byteLength;
  for (const { data } of tensors.values()) {
    file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    at += data.byteLength;
  }
  return file;
}

/** Rounds to bfloat16, the upper half of a float32: to the nearest, ties to even. */
export function toBfloat16(values: Float32Array): Uint16Array {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const rounded = new Uint16Array(values.length);
  for (let i = 0; i < rounded.length; i++) {
    const word = words[i]!;
    const isNaN = (word & 0x7fffffff) > 0x7f800000;
    rounded[i] = isNaN ? 0x7fc0 : (word + 0x7fff + ((word >>> 16) & 1)) >>> 16;
  }
  return rounded;
}

/** Converts IEEE 754 binary16 to a number. */
export function halfToFloat(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
