import { createHash, type Hash, randomUUID } from 'node:crypto';
import { headers } from 'nats';
import pLimit from 'p-limit';
import { z } from 'zod';
import { chunksOf } from '../base/bytes.js';
import { errorText, PermanentError } from '../base/errors.js';
import { classify } from './failures.js';
import { ChunkReader } from './chunk-reader.js';
import { ask, askFor, largestBody, type Link, streamState } from './link.js';

/** The metadata entry of an object, in the layout that every NATS client expects. */
const ObjectInfo = z.looseObject({
  nuid: z.string().regex(/^[A-Za-z0-9-]{1,64}$/), // token in the subject of its chunks
  size: z.int().nonnegative(),
  chunks: z.int().nonnegative(),
  digest: z.string().max(256),
  deleted: z.boolean().default(false),
});
type ObjectInfo = z.infer<typeof ObjectInfo>;

const usualChunkBytes = 128 * 1024;
const chunksInFlight = 16;
const longestSubject = 4_096; // in bytes: nats-server accepts no longer protocol line

/** The bucket is full, and the object is not worth waiting for. */
export class NoRoom extends Error {
  override readonly name = 'NoRoom';
}

/**
 * A bucket for bodies that are too large for a message: NATS' object store, accessed by requests for single
 * messages. The client's own implementation creates a consumer for each read, and a permission to create
 * consumers would let its owner have the bucket's content delivered to any subject.
 */
export class ObjectBucket {
  readonly #link: Link;
  readonly #bucket: string;
  readonly #maxBytes: () => Promise<number>;
  readonly #waitsForRoom: boolean;
  readonly #reader: ChunkReader;

  /**
   * @param maxBytes of one object: a larger one is never read.
   * @param waitsForRoom whether `put` waits while the bucket is full; else it throws `NoRoom`.
   */
  constructor(link: Link, bucket: string, maxBytes: () => Promise<number>, waitsForRoom = true) {
    this.#link = link;
    this.#bucket = bucket;
    this.#maxBytes = maxBytes;
    this.#waitsForRoom = waitsForRoom;
    this.#reader = new ChunkReader(link, this.#stream);
  }

  /** The same bucket for objects that are not worth waiting for. */
  withoutWaiting(): ObjectBucket {
    return new ObjectBucket(this.#link, this.#bucket, this.#maxBytes, false);
  }

  /**
   * Stores the whole object or nothing.
   *
   * @param name of the object, or its name by the SHA-256 of the bytes in hexadecimal.
   * @param options.replaces whether an existing object of this name is replaced.
   * @returns the SHA-256 in hexadecimal.
   */
  async put(
    name: string | ((sha256: string) => string),
    bytes: Uint8Array,
    { replaces = false } = {},
  ): Promise<string> {
    const chunkBytes = Math.min(usualChunkBytes, largestBody(this.#link));
    const chunks = chunksOf(bytes, chunkBytes);
    const what = typeof name === 'string' ? name : `an object of ${bytes.byteLength} bytes`;
    // The server stores chunks while the digest is computed.
    const [nuid, digest] = await Promise.all([this.#storeChunks(what, chunks), digestOf(chunks)]);
    const sha256 = digest.toString('hex');
    const object = typeof name === 'string' ? name : name(sha256);
    const old = replaces ? await this.#info(object) : undefined;
    const info = {
      name: object,
      bucket: this.#bucket,
      nuid,
      size: bytes.byteLength,
      chunks: chunks.length,
      digest: entryDigest(digest),
      mtime: new Date().toISOString(),
      options: { max_chunk_size: chunkBytes },
    };
    const entry = new TextEncoder().encode(JSON.stringify(info));
    try {
      await this.#publish(object, this.#entrySubject(object), entry, nuid, replaces);
    } catch (caught) {
      if (caught instanceof NoRoom) await this.#purge(object, this.#chunkSubject(nuid));
      throw caught;
    }
    if (old !== undefined) await this.#purge(object, this.#chunkSubject(old.nuid));
    return sha256;
  }

  /**
   * Reads an object and verifies its SHA-256; `undefined` if it does not exist or is deleted during the read.
   *
   * @throws {PermanentError} if it is too large, or does not match its entry.
   */
  async get(name: string): Promise<Uint8Array | undefined> {
    return (await this.read(name))?.bytes;
  }

  /** The same as `get`, with the SHA-256 in hexadecimal, for which the bytes are not read a second time. */
  async read(name: string): Promise<{ bytes: Uint8Array; sha256: string } | undefined> {
    const info = await this.#info(name);
    if (info === undefined) return undefined;
    const maxBytes = await this.#maxBytes();
    if (info.size > maxBytes) {
      throw new PermanentError(
        `object ${name} of ${this.#bucket} has ${info.size} bytes; at most ${maxBytes} are read`,
      );
    }
    const { bytes, hash } = await this.#chunks(info);
    const digest = hash.digest();
    const text = entryDigest(digest);
    if (text === info.digest && bytes.byteLength === info.size) {
      return { bytes, sha256: digest.toString('hex') };
    }
    if ((await this.#info(name))?.nuid !== info.nuid) return undefined; // deleted during the read
    throw new PermanentError(
      `object ${name} of ${this.#bucket} is damaged: its entry says ${info.size} bytes with ${info.digest}, but ${bytes.byteLength} with ${text} are stored`,
    );
  }

  /** Removes the object and its entry; the client's own delete would leave a marker. */
  async delete(name: string): Promise<void> {
    const info = await this.#info(name);
    if (info === undefined) return;
    for (const subject of [this.#entrySubject(name), this.#chunkSubject(info.nuid)]) {
      await this.#purge(name, subject);
    }
  }

  /**
   * Deletes all objects but some, and chunks that belong to none: what a killed process has left. Only where no other process
   * writes meanwhile.
   *
   * @param wanted the names of those that stay; called once all objects are listed.
   * @returns how many subjects were deleted: an entry, or the chunks of an object.
   */
  async retain(wanted: () => Promise<ReadonlySet<string>>): Promise<number> {
    const state = await streamState(this.#link, this.#stream, `$O.${this.#bucket}.>`);
    const kept = new Set<string>();
    for (const name of await wanted()) {
      kept.add(this.#entrySubject(name));
      const info = await this.#info(name);
      if (info !== undefined) kept.add(this.#chunkSubject(info.nuid));
    }
    const others = Object.keys(state?.subjects ?? {}).filter((subject) => !kept.has(subject));
    for (const subject of others) await this.#purge(subject, subject);
    return others.length;
  }

  async #info(name: string): Promise<ObjectInfo | undefined> {
    const { jsm, log } = this.#link;
    const subject = this.#entrySubject(name);
    // No such object can exist: the sender of a message made up the name, and it would not fit a request.
    if (subject.length > longestSubject) return undefined;
    const entry = await askFor(this.#link, `read the entry of ${name} in ${this.#bucket}`, () =>
      jsm.streams.getMessage(this.#stream, { last_by_subj: subject }),
    );
    if (entry === undefined) return undefined;
    try {
      const info = ObjectInfo.parse(JSON.parse(new TextDecoder().decode(entry.data)));
      return info.deleted ? undefined : info;
    } catch (caught) {
      log.warn({ object: name, reason: errorText(caught) }, 'object entry unreadable');
      return undefined;
    }
  }

  /** Reads at most the size that the entry states, however many chunks are stored, into one block of memory. */
  async #chunks({ nuid, size, chunks }: ObjectInfo): Promise<{ bytes: Uint8Array; hash: Hash }> {
    const hash = createHash('sha256');
    const bytes = new Uint8Array(size);
    let filled = 0;
    for await (const data of this.#reader.read(this.#chunkSubject(nuid), chunks)) {
      if (filled + data.byteLength > size) break;
      bytes.set(data, filled);
      hash.update(data);
      filled += data.byteLength;
    }
    this.#link.signal.throwIfAborted();
    return { bytes: bytes.subarray(0, filled), hash };
  }

  /**
   * Stores the chunks so that their sequence numbers rise in order. Many are in flight at once, so a chunk
   * that is retried after an outage or a full stream may be stored after its successors; then all are sent
   * again, one at a time.
   *
   * @returns the nuid in the subject of the chunks.
   */
  async #storeChunks(name: string, chunks: readonly Uint8Array[]): Promise<string> {
    for (let inFlight = chunksInFlight; ; inFlight = 1) {
      const nuid = randomUUID();
      const subject = this.#chunkSubject(nuid);
      const limit = pLimit(inFlight);
      const sent = chunks.map((chunk, i) =>
        limit(() => this.#publish(name, subject, chunk, `${nuid}-${i}`)),
      );
      const seqs = await Promise.all(sent).catch(async (caught: unknown) => {
        if (caught instanceof NoRoom) {
          await Promise.allSettled(sent); // a chunk stored after the purge would stay
          await this.#purge(name, subject);
        }
        throw caught;
      });
      if (seqs.every((seq, i) => i === 0 || seq > seqs[i - 1]!)) return nuid;
      this.#link.log.warn({ object: name }, 'chunks stored out of order, resending one by one');
      try {
        await this.#purge(name, subject);
      } catch (caught) {
        // The chunks belong to no entry. `retain` or the sweep deletes them later.
        this.#link.log.warn({ object: name, reason: errorText(caught) }, 'chunks not deleted');
      }
    }
  }

  /** @returns the sequence number of the message, even if it had been stored before. */
  async #publish(
    name: string,
    subject: string,
    data: Uint8Array,
    msgID: string,
    replaces = false,
  ): Promise<number> {
    const fields = headers();
    if (replaces) fields.set('Nats-Rollup', 'sub');
    const { seq } = await this.#ask(`store ${name}`, async () => {
      try {
        return await this.#link.js.publish(subject, data, { msgID, headers: fields });
      } catch (caught) {
        if (this.#waitsForRoom || classify(caught) !== 'full') throw caught;
        throw new NoRoom(`bucket ${this.#bucket} is full`, { cause: caught });
      }
    });
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

/** Computed in turns with other work, which some hundred megabytes would hold up. */
async function digestOf(chunks: readonly Uint8Array[]): Promise<Buffer> {
  const hash = createHash('sha256');
  for (const [i, chunk] of chunks.entries()) {
    if (i % chunksInFlight === 0) await new Promise(setImmediate);
    hash.update(chunk);
  }
  return hash.digest();
}

/** A SHA-256 in the form of an object's entry. */
function entryDigest(digest: Buffer): string {
  return `SHA-256=${digest.toString('base64').replaceAll('+', '-').replaceAll('/', '_')}`;
}
