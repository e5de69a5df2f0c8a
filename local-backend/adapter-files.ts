import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sha256 } from '../shared/base/bytes.js';
import { errorText, PermanentError } from '../shared/base/errors.js';
import { checkAdapter, decodeAdapter, type Adapter } from '../shared/model/lora.js';
import type { ModelConfig } from '../shared/model/model-config.js';

/** The location of the weights of a sampling session; absent for the base model. */
export interface AdapterFile {
  readonly folder: string; // holds adapter_model.safetensors
  readonly sha256: string; // of the content that the session was created for
  readonly rank: number;
  readonly alpha: number;
}

/** Reads adapters of sampling sessions, and keeps those that were used last. */
export class AdapterFiles {
  readonly #adapters = new Map<string, Adapter>(); // by digest, least recently used first
  readonly #mostBytes: number;

  /**
   * @param mostBytes that the kept adapters have together, though the last one is kept whatever its size. Sessions of
   *   the few newest policy versions are used side by side. Reading a large one again takes little beside sampling with it.
   */
  constructor(mostBytes = 40 * 2 ** 20) {
    this.#mostBytes = mostBytes;
  }

  /** @throws {PermanentError} if the file is not the one that the session was created for. */
  async read(file: AdapterFile, config: ModelConfig): Promise<Adapter> {
    const kept = this.#adapters.get(file.sha256);
    const adapter = kept ?? decodeAdapter(await readAdapterFile(file), file);
    if (kept === undefined) checkAdapter(adapter, config);
    this.#adapters.delete(file.sha256);
    this.#adapters.set(file.sha256, adapter);
    let bytes = 0;
    for (const [digest, held] of [...this.#adapters].reverse()) {
      bytes += sizeOf(held);
      if (bytes > this.#mostBytes && held !== adapter) this.#adapters.delete(digest);
    }
    return adapter;
  }
}

function sizeOf({ tensors }: Adapter): number {
  let bytes = 0;
  for (const { data } of tensors.values()) bytes += data.byteLength;
  return bytes;
}

async function readAdapterFile({ folder, sha256: expected }: AdapterFile): Promise<Uint8Array> {
  const path = join(folder, 'adapter_model.safetensors');
  const remedy = 'create another sampling session';
  const bytes = await readFile(path).catch((cause: unknown) => {
    throw new PermanentError(
      `the checkpoint of this sampling session cannot be read (${errorText(cause)}); ${remedy}`,
    );
  });
  if (sha256(bytes) === expected) return bytes;
  throw new PermanentError(`the checkpoint of this sampling session has been replaced; ${remedy}`);
}
