import { createHash, randomUUID } from 'node:crypto';
import { headers } from 'nats';
import pLimit from 'p-limit';
import { z } from 'zod';
import { errorText, PermanentError } from '../base/errors.js';
import { ask, askFor, largestBody, type Link } from './link.js';
import { held } from './tail.js';

/** The entry of an object, laid out as every NATS client expects it. */
const ObjectInfo = z.looseObject({
  nuid: z.string().regex(/^[A-Za-z0-9-]{1,64}$/), // of its chunks: a token of their subject
  size: z.int().nonnegative(),
  chunks: z.int().nonnegative(),
  digest: z.string().max(256),
  deleted: z.boolean().default(false),
});
type ObjectInfo = z.infer<typeof ObjectInfo>;

const usualChunkBytes = 128 * 1024;
const chunksInFlight = 16;
const longestSubject = 4_096; // in bytes: nats-server takes no longer line from a publisher

/**
 * A bucket for what is too large for a message. It is NATS' object store, read and written by requests
 * for single messages: the client's own would make a consumer on the server for each read, and who
 * may make consumers can have the server deliver what a bucket holds to any subject at all.
 */
export class ObjectBucket {
  readonly #link: Link;
  readonly #bucket: string;
  readonly #maxBytes: () => Promise<number>;

  /** @param maxBytes of one object: a larger one is not read, whoever stored it. */
  constructor(link: Link, bucket: string, maxBytes: () => Promise<number>) {
    this.#link = link;
    this.#bucket = bucket;
    this.#maxBytes = maxBytes;
  }

  /**
   * Stores the whole object or nothing.
   *
   * @param options.replaces whether an object of this name may be there: it makes way for the new one.
   */
  async put(name: string, bytes: Uint8Array, { replaces = false } = {}): Promise<void> {
    const old = replaces ? await this.#info(name) : undefined;
    const chunkBytes = Math.min(usualChunkBytes, largestBody(this.#link));
    const chunks = chunksOf(bytes, chunkBytes);
    const nuid = await this.#storeChunks(name, chunks);
    const info = {
      name,
      bucket: this.#bucket,
      nuid,
      size: bytes.byteLength,
      chunks: chunks.length,
      digest: digestOf(bytes),
      mtime: new Date().toISOString(),
      options: { max_chunk_size: chunkBytes },
    };
    const entry = new TextEncoder().encode(JSON.stringify(info));
    await this.#publish(name, this.#entrySubject(name), entry, nuid, replaces);
    if (old !== undefined) await this.#purge(name, this.#chunkSubject(old.nuid));
  }

  /**
   * The object, its SHA-256 verified; `undefined` if there is none, or it goes while it is read.
   *
   * @throws {PermanentError} if it is larger than it may be, or is not what its entry tells of.
   */
  async get(name: string): Promise<Uint8Array | undefined> {
    const info = await this.#info(name);
    if (info === undefined) return undefined;
    const maxBytes = await this.#maxBytes();
    if (info.size > maxBytes) {
      throw new PermanentError(
        `object ${name} of ${this.#bucket} has ${info.size} bytes; at most ${maxBytes} are read`,
      );
    }
    const bytes = await this.#chunks(info);
    if (digestOf(bytes) === info.digest) return bytes;
    if ((await this.#info(name))?.nuid !== info.nuid) return undefined; // it was deleted meanwhile
    throw new PermanentError(
      `object ${name} of ${this.#bucket} is damaged: its entry tells of ${info.size} bytes with ${info.digest}, and ${bytes.byteLength} with ${digestOf(bytes)} are there`,
    );
  }

  /** Removes the object and its entry, where the client's own delete would leave a marker for ever. */
  async delete(name: string): Promise<void> {
    const info = await this.#info(name);
    if (info === undefined) return;
    for (const subject of [this.#entrySubject(name), this.#chunkSubject(info.nuid)]) {
      await this.#purge(name, subject);
    }
  }

  async #info(name: string): Promise<ObjectInfo | undefined> {
    const { jsm, log } = this.#link;
    const subject = this.#entrySubject(name);
    // Who names such an object in a message makes it up, and asking for it could take more than a request.
    if (subject.length > longestSubject) return undefined;
    const entry = await askFor(this.#link, `look at ${name} of ${this.#bucket}`, () =>
      jsm.streams.getMessage(this.#stream, { last_by_subj: subject }),
    );
    if (entry === undefined) return undefined;
    try {
      const info = ObjectInfo.parse(JSON.parse(new TextDecoder().decode(entry.data)));
      return info.deleted ? undefined : info;
    } catch (caught) {
      log.warn({ object: name, reason: errorText(caught) }, 'an object without a readable entry');
      return undefined;
    }
  }

  /** At most the bytes that the entry tells of, however many chunks there are. */
  async #chunks({ nuid, size, chunks }: ObjectInfo): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
    let bytes = 0;
    if (chunks > 0) {
      const subject = this.#chunkSubject(nuid);
      for await (const { data } of held(this.#link, this.#stream, subject, this.#link.signal)) {
        bytes += data.byteLength;
        if (bytes > size) break;
        parts.push(data);
        if (parts.length === chunks) break;
      }
    }
    this.#link.signal.throwIfAborted();
    return new Uint8Array(Buffer.concat(parts));
  }

  /**
   * Stores the chunks in their order, which is that of their sequence numbers. Many are on their way at
   * once, so one that has to be sent again, after an outage or for want of room, may come behind those that
   * followed it; then all are sent again, each when the one before is stored.
   *
   * @returns what they are stored under.
   */
  async #storeChunks(name: string, chunks: readonly Uint8Array[]): Promise<string> {
    for (let inFlight = chunksInFlight; ; inFlight = 1) {
      const nuid = randomUUID();
      const subject = this.#chunkSubject(nuid);
      const limit = pLimit(inFlight);
      const seqs = await Promise.all(
        chunks.map((chunk, i) => limit(() => this.#publish(name, subject, chunk, `${nuid}-${i}`))),
      );
      if (seqs.every((seq, i) => i === 0 || seq > seqs[i - 1]!)) return nuid;
      this.#link.log.warn({ object: name }, 'chunks came out of order, sending them one by one');
      try {
        await this.#purge(name, subject);
      } catch (caught) {
        // An actor may not, so they go by their age.
        this.#link.log.warn({ object: name, reason: errorText(caught) }, 'chunks left behind');
      }
    }
  }

  /** @returns the sequence number of the message, also if it was stored before. */
  async #publish(
    name: string,
    subject: string,
    data: Uint8Array,
    msgID: string,
    replaces = false,
  ): Promise<number> {
    const fields = headers();
    if (replaces) fields.set('Nats-Rollup', 'sub');
    const { seq } = await this.#ask(`store ${name}`, () =>
      this.#link.js.publish(subject, data, { msgID, headers: fields }),
    );
    return seq;
  }

  async #purge(name: string, filter: string): Promise<void> {
    const { jsm } = this.#link;
    await this.#ask(`delete ${name}`, () => jsm.streams.purge(this.#stream, { filter }));
  }

  #ask<T>(what: string, question: () => Promise<T>): Promise<T> {
    return ask(this.#link, `${what} of ${this.#bucket}`, question);
  }

  get #stream(): string {
    return `OBJ_${this.#bucket}`;
  }

  #entrySubject(name: string): string {
    const key = Buffer.from(name).toString('base64').replaceAll('+', '-').replaceAll('/', '_');
    return `$O.${this.#bucket}.M.${key}`;
  }

  #chunkSubject(nuid: string): string {
    return `$O.${this.#bucket}.C.${nuid}`;
  }
}

function chunksOf(bytes: Uint8Array, chunkBytes: number): Uint8Array[] {
  const count = Math.ceil(bytes.byteLength / chunkBytes);
  return Array.from({ length: count }, (_, i) =>
    bytes.subarray(i * chunkBytes, (i + 1) * chunkBytes),
  );
}

function digestOf(bytes: Uint8Array): string {
  const base64 = createHash('sha256').update(bytes).digest('base64');
  return `SHA-256=${base64.replaceAll('+', '-').replaceAll('/', '_')}`;
}
