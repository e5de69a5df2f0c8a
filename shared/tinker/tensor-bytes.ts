import { PermanentError } from '../base/errors.js';
import { DType } from './tinker_pb.js';

/** Returns the little-endian bytes of an array, without a copy. */
export function bytesOf(array: Int32Array | Float32Array): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

/** Encodes integers as little-endian int64. */
export function int64Bytes(values: ArrayLike<number>): Uint8Array {
  const words = new Int32Array(2 * values.length);
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!;
    words[2 * i] = value; // stored modulo 2^32
    words[2 * i + 1] = Math.floor(value / 2 ** 32);
  }
  return bytesOf(words);
}

/**
 * Reads int32 or int64 elements whose values fit 32 bits.
 *
 * @throws {PermanentError} on another dtype, a ragged length or a larger integer.
 */
export function readIntegers(bytes: Uint8Array, dtype: DType): Int32Array {
  if (dtype === DType.DTYPE_INT32) return new Int32Array(aligned(bytes, 4));
  if (dtype !== DType.DTYPE_INT64) {
    throw new PermanentError(`expected int64 or int32 elements, found ${dtypeName(dtype)}`);
  }
  const words = new Int32Array(aligned(bytes, 8));
  const integers = new Int32Array(words.length / 2);
  for (let i = 0; i < integers.length; i++) {
    integers[i] = words[2 * i]!;
    if (words[2 * i + 1] !== integers[i]! >> 31) {
      throw new PermanentError(`element ${i} does not fit 32 bits`);
    }
  }
  return integers;
}

/** Reads byte offsets from int64 elements. @throws {PermanentError} on a ragged length. */
export function readOffsets(bytes: Uint8Array): number[] {
  return Array.from(new BigInt64Array(aligned(bytes, 8)), Number);
}

/**
 * Reads floats from elements of any dtype of the protocol; bfloat16 is the high half of a float32.
 *
 * @throws {PermanentError} on an unknown dtype or a ragged length.
 */
export function readFloats(bytes: Uint8Array, dtype: DType): Float32Array {
  switch (dtype) {
    case DType.DTYPE_FLOAT32:
      return new Float32Array(aligned(bytes, 4));
    case DType.DTYPE_BFLOAT16: {
      const halves = new Uint16Array(aligned(bytes, 2));
      return new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer);
    }
    case DType.DTYPE_INT32:
    case DType.DTYPE_INT64:
      return Float32Array.from(readIntegers(bytes, dtype));
    default:
      throw new PermanentError(
        `expected float32, bfloat16, int64 or int32, found ${dtypeName(dtype)}`,
      );
  }
}

/** Open enum: a newer server may send a number without a name. */
function dtypeName(dtype: DType): string {
  return Object.hasOwn(DType, dtype) ? DType[dtype] : `dtype ${dtype}`;
}

/** Copies the bytes to an aligned address: a field of a message may start at any byte. */
function aligned(bytes: Uint8Array, elementBytes: number): ArrayBuffer {
  if (bytes.byteLength % elementBytes !== 0) {
    throw new PermanentError(
      `${bytes.byteLength} bytes are not an array of ${elementBytes}-byte elements`,
    );
  }
  const copy = new ArrayBuffer(bytes.byteLength);
  new Uint8Array(copy).set(bytes);
  return copy;
}
