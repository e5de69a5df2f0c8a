import { randomUUID } from 'node:crypto';
import pLimit from 'p-limit';
import { z } from 'zod';
import { chunksOf, sha256 } from '../base/bytes.js';
import { errorText, PermanentError } from '../base/errors.js';
import { isNotThere } from './failures.js';
import { ask, askFor, largestBody, type Link } from './link.js';
import { countBlocked, retry } from './retry.js';

/** Header of a group whose body an actor has uploaded; the message lists the chunks. */
export const uploadHeader = 'Offbeat-Upload';

/** Maximum size of a chunk. The stream accepts no larger one, so a share is bounded in bytes as well. */
const usualChunkBytes = 512 * 1024;
const chunksInFlight = 4;

/** Chunk size of a body on this server, in bytes. */
export function uploadChunkBytes(link: Link): number {
  return Math.min(usualChunkBytes, largestBody(link));
}

/** Describes an uploaded body; sent as the message. */
const Manifest = z.strictObject({
  size: z.int().nonnegative(), // bytes
  sha256: z.string().length(64),
  chunks: z
    .array(z.int().positive()) // sequence numbers in the stream, in order
    .min(1)
    .max(4_096)
    .refine((chunks) => new Set(chunks).size === chunks.length, 'a chunk is listed twice'),
});
type Manifest = z.infer<typeof Manifest>;

/**
 * Groups of actors that are too large for a message. All chunks of an actor have one subject, so that the
 * server itself limits each actor, and an actor that uses up its share does not block others. A chunk is read
 * or deleted only on behalf of the actor that uploaded it.
 */
export class Uploads {
  readonly #link: Link;
  readonly #maxBytes: () => Promise<number>;
  /** One upload at a time: several uploads that each wait for room for their last chunk would deadlock. */
  readonly #turn = pLimit(1);

  /** @param maxBytes of one body: a larger one is never read. */
  constructor(link: Link, maxBytes: () => Promise<number>) {
    this.#link = link;
    this.#maxBytes = maxBytes;
  }

  /**
   * Stores a body, however long the actor's share is used up or the server unreachable.
   *
   * @param subject subject of the actor's uploads.
   * @returns the content of the message that refers to it.
   * @throws the signal's reason, once it aborts.
   */
  put(subject: string, bytes: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    return this.#turn(async () => {
      const id = randomUUID();
      const limit = pLimit(chunksInFlight);
      const chunks = await Promise.all(
        chunksOf(bytes, uploadChunkBytes(this.#link)).map((chunk, i) =>
          limit(() => this.#publish(subject, chunk, `${id}-${i}`, signal)),
        ),
      );
      const manifest: Manifest = { size: bytes.byteLength, sha256: sha256(bytes), chunks };
      return new TextEncoder().encode(JSON.stringify(manifest));
    });
  }

  /**
   * Reads the body that a message refers to and verifies its SHA-256; `undefined` if a chunk is gone.
   *
   * @param subject subject of the uploads of the message's sender.
   * @throws {PermanentError} if the message is malformed, refers to another sender's chunks, or the body is
   *   too large.
   */
  async get(subject: string, message: Uint8Array): Promise<Uint8Array | undefined> {
    const { size, sha256: expected, chunks } = manifestIn(message);
    const maxBytes = await this.#maxBytes();
    if (size > maxBytes) {
      throw new PermanentError(`its body has ${size} bytes; at most ${maxBytes} are read`);
    }
    const parts: Uint8Array[] = [];
    let bytes = 0;
    for (const seq of chunks) {
      const part = await this.#chunk(subject, seq);
      if (part === undefined) return undefined;
      bytes += part.byteLength;
      if (bytes > size) break;
      parts.push(part);
    }
    const body = Buffer.concat(parts);
    if (bytes === size && sha256(body) === expected) return new Uint8Array(body);
    throw new PermanentError(
      `its body is damaged: expected ${size} bytes with SHA-256 ${expected}, found ${bytes} with ${sha256(body)}`,
    );
  }

  /**
   * Deletes the chunks of a message's body.
   *
   * @param isRead whether `get` has returned the body, which proves that all chunks are its sender's.
   * @throws {PermanentError} if the message is malformed or refers to another sender's chunks.
   */
  async delete(subject: string, message: Uint8Array, isRead: boolean): Promise<void> {
    const { jsm, names } = this.#link;
    const stream = names.streams.uploads;
    const limit = pLimit(chunksInFlight);
    const drop = async (seq: number) => {
      if (!isRead && (await this.#chunk(subject, seq)) === undefined) return;
      try {
        await ask(this.#link, `delete message ${seq} of ${stream}`, () =>
          jsm.streams.deleteMessage(stream, seq, false),
        );
      } catch (caught) {
        if (!isNotThere(caught)) throw caught; // another process deleted it first
      }
    };
    await Promise.all(manifestIn(message).chunks.map((seq) => limit(() => drop(seq))));
  }

  /** Reads a chunk. @throws {PermanentError} if another actor uploaded it. */
  async #chunk(subject: string, seq: number): Promise<Uint8Array | undefined> {
    const { jsm, names } = this.#link;
    const stream = names.streams.uploads;
    const found = await askFor(this.#link, `read message ${seq} of ${stream}`, () =>
      jsm.streams.getMessage(stream, { seq }),
    );
    if (found !== undefined && found.subject !== subject) {
      throw new PermanentError(`its body names chunk ${seq}, which another actor uploaded`);
    }
    return found?.data;
  }

  async #publish(
    subject: string,
    data: Uint8Array,
    msgID: string,
    signal: AbortSignal,
  ): Promise<number> {
    const { js, log, outages } = this.#link;
    const onWait = countBlocked('uploads');
    const options = { what: `publish to ${subject}`, log, signal, outages, onWait };
    return (await retry(options, () => js.publish(subject, data, { msgID }))).seq;
  }
}

function manifestIn(message: Uint8Array): Manifest {
  try {
    return Manifest.parse(JSON.parse(new TextDecoder().decode(message)));
  } catch (caught) {
    const reason = caught instanceof z.ZodError ? z.prettifyError(caught) : errorText(caught);
    throw new PermanentError(`it does not describe its body: ${reason.slice(0, 500)}`); // the sender's words
  }
}
