import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pack } from 'tar-stream';
import { adapterFiles } from './checkpoint-store.js';
import { notFound } from './http-api.js';

interface Link {
  readonly folder: string; // of the adapter, with its two files
  readonly file: string | undefined; // undefined: a tar of both
  readonly expiresAt: number; // ms since the epoch
}

const lifetimeMs = 15 * 60_000;

/** Download links for adapters. They are unguessable and short-lived, since following one requires no key. */
export class Archives {
  readonly #links = new Map<string, Link>();

  constructor(private readonly now: () => number = Date.now) {}

  /** Creates a token for one file of the adapter in `folder`, or for a tar of both. */
  offer(folder: string, file?: string): { token: string; expiresAt: number } {
    const now = this.now();
    for (const [token, { expiresAt }] of this.#links) {
      if (expiresAt <= now) this.#links.delete(token);
    }
    const token = randomBytes(24).toString('base64url');
    const expiresAt = now + lifetimeMs;
    this.#links.set(token, { folder, file, expiresAt });
    return { token, expiresAt };
  }

  /**
   * Returns the file, or the tar.
   *
   * @throws {ApiError} 404 when the token is unknown or expired, or the checkpoint was deleted.
   */
  async open(token: string): Promise<{ body: Uint8Array; type: string }> {
    const link = this.#links.get(token);
    if (link === undefined || link.expiresAt <= this.now()) {
      throw notFound('this download link is unknown or has expired; ask for the archive again');
    }
    const names = link.file === undefined ? adapterFiles : [link.file];
    const contents = await Promise.all(
      names.map((name) => readFile(join(link.folder, name))),
    ).catch(() => {
      throw notFound('the checkpoint of this download link was deleted');
    });
    if (link.file !== undefined) return { body: contents[0]!, type: 'application/octet-stream' };
    const tar = pack();
    names.forEach((name, i) => {
      tar.entry({ name, mtime: new Date(0) }, contents[i]!); // a fixed time makes the bytes reproducible
    });
    tar.finalize();
    const parts: Uint8Array[] = [];
    for await (const part of tar as AsyncIterable<Uint8Array>) parts.push(part);
    return { body: Buffer.concat(parts), type: 'application/x-tar' };
  }
}
