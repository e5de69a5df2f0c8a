import { open, type FileHandle } from 'node:fs/promises';
import { gguf, GGMLQuantizationType } from '@huggingface/gguf';
import { errorText, UserError } from '../../base/errors.js';
import { readRange } from '../safetensors-file.js';
import { type BlockFormat, formatOf, readableFormats } from './block-formats.js';

/** The values of a GGUF file by key; integers of 64 bits are numbers too. */
export type GgufMetadata = Readonly<Record<string, unknown>>;

/** The position of a tensor in a GGUF file. */
export interface GgufTensor {
  readonly format: BlockFormat;
  readonly dims: readonly number[]; // in C order, as PyTorch has them
  readonly begin: number; // its first byte, counted from the start of the file
}

/** A GGUF file on disk. Only the requested tensors are read, so the file may have any size. */
export class GgufFile implements AsyncDisposable {
  private constructor(
    readonly path: string,
    readonly metadata: GgufMetadata,
    readonly tensors: ReadonlyMap<string, GgufTensor>,
    readonly handle: FileHandle,
  ) {}

  /**
   * Opens a file and reads its metadata.
   *
   * @throws {UserError} if it is none, is cut off, or has a tensor of a format that cannot be read.
   */
  static async open(path: string): Promise<GgufFile> {
    const handle = await open(path);
    try {
      const { size } = await handle.stat();
      const { metadata, tensors } = await parse(path, size);
      return new GgufFile(path, metadata, tensors, handle);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /** Bytes of the file. */
  read(begin: number, end: number): Promise<Uint8Array> {
    return readRange(this.handle, begin, end);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.handle.close();
  }
}

/** ggml's names of its formats; a newer file may have others. */
const formatNames: Readonly<Record<number, string | undefined>> = GGMLQuantizationType;

async function parse(path: string, fileBytes: number) {
  const parsed = await gguf(path, { allowLocalFile: true }).catch((cause: unknown) => {
    throw new UserError(
      `${path} is not a readable GGUF file (${errorText(cause)}); download it again`,
      { cause },
    );
  });
  if (!parsed.littleEndian) {
    throw new UserError(`${path} is a big-endian GGUF file; take the little-endian one`);
  }
  const tensors = new Map<string, GgufTensor>();
  for (const { name, shape, dtype, offset } of parsed.tensorInfos) {
    const format = formatOf(dtype);
    if (format === undefined) {
      throw new UserError(
        `${path}: ${name} has the format ${formatNames[dtype] ?? dtype}; ${readableFormats.join(', ')} ` +
          'can be read, so take the file of this model in one of them, such as Q8_0',
      );
    }
    const dims = shape.map(Number).reverse(); // ggml begins with the dimension that moves fastest
    const begin = Number(parsed.tensorDataOffset + offset);
    const blocks = dims.reduce((product, dim) => product * dim, 1 / format.elements);
    if (dims.length === 0 || dims.at(-1)! % format.elements !== 0) {
      throw new UserError(
        `${path}: ${name} has shape [${dims.join()}], which is not made of blocks of ${format.name}; download it again`,
      );
    }
    if (begin + blocks * format.bytes > fileBytes) {
      throw new UserError(
        `${path} is cut off: ${name} ends at byte ${begin + blocks * format.bytes} of ${fileBytes}; download it again`,
      );
    }
    tensors.set(name, { format, dims, begin });
  }
  return { metadata: withNumbers(parsed.metadata), tensors };
}

function withNumbers(metadata: object): GgufMetadata {
  return Object.fromEntries(
    Object.entries(metadata).map(([key, value]) => [
      key,
      typeof value === 'bigint' ? Number(value) : (value as unknown),
    ]),
  );
}
