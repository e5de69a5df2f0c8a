import { open, type FileHandle } from 'node:fs/promises';
import { headerLength, lengthBytes, parseHeader, toFloat32 } from './safetensors.js';
import type { TensorPlace } from './safetensors.js';

/** A safetensors file on disk. Only the requested tensors are read, so the file may have any size. */
export class SafetensorsFile implements AsyncDisposable {
  readonly path: string;
  readonly tensors: ReadonlyMap<string, TensorPlace>;
  readonly #handle: FileHandle;

  private constructor(path: string, tensors: Map<string, TensorPlace>, handle: FileHandle) {
    this.path = path;
    this.tensors = tensors;
    this.#handle = handle;
  }

  /**
   * Opens a file and reads its header.
   *
   * @throws {PermanentError} when a length, offset or dtype does not fit the file.
   */
  static async open(path: string): Promise<SafetensorsFile> {
    const handle = await open(path);
    try {
      const { size } = await handle.stat();
      const start = await readRange(handle, 0, Math.min(size, lengthBytes));
      const length = headerLength(start, size, path);
      const header = await readRange(handle, lengthBytes, lengthBytes + length);
      return new SafetensorsFile(path, parseHeader(header, size, path), handle);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /** The elements of one of `tensors` as float32; half precision is widened exactly. */
  async read(name: string): Promise<Float32Array> {
    const { dtype, dims, begin, end } = this.#place(name);
    return toFloat32({ dtype, dims, bytes: await readRange(this.#handle, begin, end) });
  }

  /** The bytes of one of `tensors`, in pieces. */
  async *pieces(name: string): AsyncGenerator<Uint8Array> {
    const { begin, end } = this.#place(name);
    for (let at = begin; at < end; at += pieceBytes) {
      yield await readRange(this.#handle, at, Math.min(end, at + pieceBytes));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }

  #place(name: string): TensorPlace {
    const place = this.tensors.get(name);
    if (place === undefined) throw new Error(`${this.path} has no tensor ${name}`);
    return place;
  }
}

const pieceBytes = 2 ** 24;
const mostAtOnce = 2 ** 30; // one read call takes less than 2 GiB

/** Bytes of a file; fewer than asked for are an error. */
export async function readRange(
  handle: FileHandle,
  begin: number,
  end: number,
): Promise<Uint8Array> {
  const bytes = new Uint8Array(end - begin);
  for (let done = 0; done < bytes.byteLength;) {
    const length = Math.min(bytes.byteLength - done, mostAtOnce);
    const { bytesRead } = await handle.read(bytes, done, length, begin + done);
    if (bytesRead === 0) throw new Error(`the file ends at ${begin + done}, before ${end}`);
    done += bytesRead;
  }
  return bytes;
}
