import type { ObjectResult, ObjectStore } from 'nats';
import { errorText } from '../errors.js';
import { classify } from './failures.js';
import { ask, askFor, type Link } from './link.js';
import { retry } from './retry.js';

/** A bucket for what is too large for a message. */
export class ObjectBucket {
  readonly #link: Link;
  readonly #bucket: string;
  #store: ObjectStore | undefined;

  constructor(link: Link, bucket: string) {
    this.#link = link;
    this.#bucket = bucket;
  }

  /** Stores the whole object or nothing; an object of the same name is replaced. */
  async put(name: string, bytes: Uint8Array): Promise<void> {
    const store = await this.#open();
    const { log, signal } = this.#link;
    // Without `outages`: a put that a break interrupts ends by itself, and two at once would mix.
    await retry({ what: `store ${name} in ${this.#bucket}`, log, signal }, () =>
      store.putBlob({ name }, bytes),
    );
  }

  /** The object, its SHA-256 verified by the client; `undefined` if there is none. */
  async get(name: string): Promise<Uint8Array | undefined> {
    const store = await this.#open();
    for (let attempt = 1; ; attempt++) {
      try {
        const found = await this.#ask(`fetch ${name}`, () => store.get(name));
        return found === null ? undefined : await readAll(found);
      } catch (caught) {
        // A read that a restart of the server or a deletion cut short neither ends nor fails by itself.
        if (attempt === 3 || classify(caught) === 'closed') throw caught;
        this.#link.log.warn({ object: name, reason: errorText(caught) }, 'fetching it again');
      }
    }
  }

  /** Removes the object and its entry, where the client's own delete would leave a marker for ever. */
  async delete(name: string): Promise<void> {
    const store = await this.#open();
    const info = await askFor(this.#link, `look at ${name}`, () => store.info(name));
    if (info === undefined || info === null) return;
    const key = Buffer.from(name).toString('base64').replaceAll('+', '-').replaceAll('/', '_');
    for (const filter of [`$O.${this.#bucket}.M.${key}`, `$O.${this.#bucket}.C.${info.nuid}`]) {
      await this.#ask(`delete ${name}`, () =>
        this.#link.jsm.streams.purge(`OBJ_${this.#bucket}`, { filter }),
      );
    }
  }

  #ask<T>(what: string, question: () => Promise<T>): Promise<T> {
    return ask(this.#link, `${what} of ${this.#bucket}`, question);
  }

  async #open(): Promise<ObjectStore> {
    if (this.#store === undefined) {
      // The client would create a missing bucket, unbounded; that is ensureRun's to do.
      await this.#ask('look', () => this.#link.jsm.streams.info(`OBJ_${this.#bucket}`));
      this.#store = await this.#ask('open', () => this.#link.js.views.os(this.#bucket));
    }
    return this.#store;
  }
}

const chunkDeadlineMs = 5_000;

/** The object's chunks in one array, its digest verified. @throws {Error} if no chunk comes in time. */
async function readAll({ data, error }: ObjectResult): Promise<Uint8Array> {
  const reader = data.getReader();
  const chunks: Uint8Array[] = [];
  try {
    for (;;) {
      const { done, value } = await inTime(reader.read());
      if (done) break;
      chunks.push(value);
    }
    const failure = await inTime(error);
    if (failure instanceof Error) throw failure; // else nothing: the digest is right
  } catch (caught) {
    void reader.cancel().catch(() => undefined); // it may hang as the read did
    throw caught;
  }
  return new Uint8Array(Buffer.concat(chunks));
}

async function inTime<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new Error(`nothing more came within ${chunkDeadlineMs / 1_000} s`));
    }, chunkDeadlineMs);
  });
  try {
    return await Promise.race([work, deadline]);
  } finally {
    clearTimeout(timer);
  }
}
