import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pack } from 'tar-stream';
import { notFound } from './api-error.js';

interface Link {
  readonly folder: string; // an adapter's, with its two files
  readonly expiresAt: number; // ms since the epoch
}

const lifetimeMs = 15 * 60_000;

/** Download links: unguessable and short-lived, since the one who follows them sends no key. */
export class Archives {
  readonly #links = new Map<string, Link>();

  constructor(private readonly now: () => number = Date.now) {}

  /** A token for the adapter in `folder`. */
  offer(folder: string): { token: string; expiresAt: number } {
    const now = this.now();
    for (const [token, { expiresAt }] of this.#links) {
      if (expiresAt <= now) this.#links.delete(token);
    }
    const token = randomBytes(24).toString('base64url');
    const expiresAt = now + lifetimeMs;
    this.#links.set(token, { folder, expiresAt });
    return { token, expiresAt };
  }

  /**
   * The tar that a token stands for: `adapter_model.safetensors` and `adapter_config.json`.
   *
   * @throws {ApiError} 404 when the token is unknown or old, or the checkpoint was deleted.
   */
  async open(token: string): Promise<Uint8Array> {
    const link = this.#links.get(token);
    if (link === undefined || link.expiresAt <= this.now()) {
      throw notFound('this download link is unknown or has expired; ask for the archive again');
    }
    const names = ['adapter_config.json', 'adapter_model.safetensors'];
    const contents = await Promise.all(
      names.map((name) => readFile(join(link.folder, name))),
    ).catch(() => {
      throw notFound('the checkpoint of this download link was deleted');
    });
    const tar = pack();
    names.forEach((name, i) => {
      tar.entry({ name, mtime: new Date(0) }, contents[i]!); // the same bytes each time
    });
    tar.finalize();
    const parts: Uint8Array[] = [];
    for await (const part of tar as AsyncIterable<Uint8Array>) parts.push(part);
    return Buffer.concat(parts);
  }
}
