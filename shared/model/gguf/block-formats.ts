import { halfToFloat, toFloat32 } from '../safetensors.js';

/** How a GGUF file stores numbers: in blocks of equal size, in C order. */
export interface BlockFormat {
  readonly name: string; // Q4_1
  readonly elements: number; // of one block
  readonly bytes: number; // of one block
  /** The numbers of whole blocks. They are as exact as float32, in which ggml computes them too. */
  readonly decode: (blocks: Uint8Array) => Float32Array;
}

const plain = (name: 'F32' | 'F16' | 'BF16', bytes: number): BlockFormat => ({
  name,
  elements: 1,
  bytes,
  decode: (blocks) => toFloat32({ dtype: name, dims: [], bytes: blocks }),
});

/** The block formats' blocks have 32 numbers with a common scale, a half-precision number, at their start. */
const blockElements = 32;

function quantized(
  name: string,
  bytes: number,
  decodeBlock: (block: DataView, values: Float32Array) => void,
): BlockFormat {
  const decode = (blocks: Uint8Array) => {
    const count = blocks.byteLength / bytes;
    const values = new Float32Array(count * blockElements);
    for (let i = 0; i < count; i++) {
      const block = new DataView(blocks.buffer, blocks.byteOffset + i * bytes, bytes);
      decodeBlock(block, values.subarray(i * blockElements, (i + 1) * blockElements));
    }
    return values;
  };
  return { name, elements: blockElements, bytes, decode };
}

const halfAt = (block: DataView, at: number) => halfToFloat(block.getUint16(at, true));

/** Calls `put` with each of 32 numbers of 4 bits. A byte has number i in its lower and i + 16 in its upper half. */
function forEachNibble(block: DataView, from: number, put: (i: number, nibble: number) => void) {
  for (let i = 0; i < blockElements / 2; i++) {
    const byte = block.getUint8(from + i);
    put(i, byte & 15);
    put(i + blockElements / 2, byte >> 4);
  }
}

const formats: ReadonlyMap<number, BlockFormat> = new Map([
  [0, plain('F32', 4)],
  [1, plain('F16', 2)],
  [
    2,
    quantized('Q4_0', 18, (block, values) => {
      const scale = halfAt(block, 0);
      forEachNibble(block, 2, (i, nibble) => (values[i] = scale * (nibble - 8)));
    }),
  ],
  [
    3,
    quantized('Q4_1', 20, (block, values) => {
      const scale = halfAt(block, 0);
      const least = halfAt(block, 2);
      forEachNibble(block, 4, (i, nibble) => (values[i] = scale * nibble + least));
    }),
  ],
  [
    8,
    quantized('Q8_0', 34, (block, values) => {
      const scale = halfAt(block, 0);
      for (let i = 0; i < blockElements; i++) values[i] = scale * block.getInt8(2 + i);
    }),
  ],
  [30, plain('BF16', 2)],
]);

/** The names of the formats that can be read. */
export const readableFormats = [...formats.values()].map(({ name }) => name);

/** The format with ggml's number; undefined for one that cannot be read. */
export function formatOf(ggmlType: number): BlockFormat | undefined {
  return formats.get(ggmlType);
}
