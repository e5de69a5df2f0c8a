/** A number that is written as float32; other numbers are written as unsigned integers of 32 bits. */
export interface Float32 {
  readonly float: number;
}

export type GgufValue = string | boolean | number | bigint | Float32 | readonly (string | number)[];

/** A tensor as it is stored. */
export interface StoredTensor {
  readonly dims: readonly number[]; // in C order
  readonly type: number; // ggml's number: 0 is F32
  readonly bytes: Uint8Array;
}

const types = {
  uint32: 4,
  int32: 5,
  float32: 6,
  bool: 7,
  string: 8,
  array: 9,
  uint64: 10,
} as const;
const alignment = 32;

/** The bytes of a GGUF file, version 3. */
export function encodeGguf(
  metadata: Readonly<Record<string, GgufValue>>,
  tensors: Readonly<Record<string, StoredTensor>>,
): Uint8Array {
  const head: Buffer[] = [
    Buffer.from('GGUF'),
    uint32(3),
    uint64(Object.keys(tensors).length),
    uint64(Object.keys(metadata).length),
  ];
  for (const [key, value] of Object.entries(metadata)) head.push(string(key), valueOf(value));
  const data: Buffer[] = [];
  let offset = 0;
  for (const [name, { dims, type, bytes }] of Object.entries(tensors)) {
    head.push(string(name), uint32(dims.length));
    for (const dim of dims.toReversed()) head.push(uint64(dim)); // the one that moves fastest first
    head.push(uint32(type), uint64(offset));
    const padded = padding(bytes.byteLength);
    data.push(Buffer.from(bytes), padded);
    offset += bytes.byteLength + padded.byteLength;
  }
  const header = Buffer.concat(head);
  return Buffer.concat([header, padding(header.byteLength), ...data]);
}

/** Numbers as an F32 tensor. */
export function float32Tensor(dims: readonly number[], values: ArrayLike<number>): StoredTensor {
  return { dims, type: 0, bytes: new Uint8Array(Float32Array.from(values).buffer) };
}

function padding(bytes: number): Buffer {
  return Buffer.alloc((alignment - (bytes % alignment)) % alignment);
}

function valueOf(value: GgufValue): Buffer {
  if (typeof value === 'string') return Buffer.concat([uint32(types.string), string(value)]);
  if (typeof value === 'boolean') {
    return Buffer.concat([uint32(types.bool), Buffer.from([Number(value)])]);
  }
  if (typeof value === 'number') return Buffer.concat([uint32(types.uint32), uint32(value)]);
  if (typeof value === 'bigint') return Buffer.concat([uint32(types.uint64), uint64(value)]);
  if ('float' in value) {
    const bytes = Buffer.alloc(4);
    bytes.writeFloatLE(value.float);
    return Buffer.concat([uint32(types.float32), bytes]);
  }
  const isText = typeof value[0] === 'string';
  const elements = value.map((each) => (typeof each === 'string' ? string(each) : uint32(each)));
  const elementType = uint32(isText ? types.string : types.int32);
  return Buffer.concat([uint32(types.array), elementType, uint64(value.length), ...elements]);
}

function string(text: string): Buffer {
  const bytes = Buffer.from(text);
  return Buffer.concat([uint64(bytes.byteLength), bytes]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function uint64(value: number | bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}
