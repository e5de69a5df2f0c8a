import type { KV, KvEntry } from 'nats';
import type { z } from 'zod';
import { errorText } from '../base/errors.js';
import { decode, encode } from '../wire/codec.js';
import { classify } from './failures.js';
import { ask, askFor, type Link } from './link.js';
import { lastSequence, stored } from './tail.js';

/** A value and its revision, for compare-and-set. */
export interface Entry<T> {
  readonly value: T;
  readonly revision: number;
}

/** A key-value bucket of the run. Reads go to the stream's leader, so they see every earlier write. */
export class KeyValue {
  readonly #link: Link;
  readonly #bucket: string;
  #kv: KV | undefined;
  #isInUse = false;

  constructor(link: Link, bucket: string) {
    this.#link = link;
    this.#bucket = bucket;
  }

  /** @throws {WireError} if the stored value does not match `schema`. */
  async get<S extends z.ZodType>(schema: S, key: string): Promise<Entry<z.output<S>> | undefined> {
    const entry = await this.#entry(key);
    if (entry?.operation !== 'PUT') return undefined;
    const { value, revision } = entry;
    return { value: decode(schema, `${this.#bucket}.${key}`, value), revision };
  }

  /** Returns the values of a key that the bucket still has, newest first, without unreadable ones. */
  async history<S extends z.ZodType>(schema: S, key: string): Promise<z.output<S>[]> {
    const [stream, subject] = [`KV_${this.#bucket}`, `$KV.${this.#bucket}.${key}`];
    const values: z.output<S>[] = [];
    for await (const { seq, data, header } of stored(this.#link, stream, subject, neverAborts)) {
      if (header.get('KV-Operation') !== '') continue; // marks a deletion
      try {
        values.unshift(decode(schema, `${this.#bucket}.${key}`, data));
      } catch (caught) {
        this.#link.log.warn({ stream, seq, reason: errorText(caught) }, 'unreadable value skipped');
      }
    }
    return values;
  }

  /** Writes unconditionally. */
  async put<S extends z.ZodType>(schema: S, key: string, value: z.output<S>): Promise<number> {
    const bytes = encode(schema, value);
    const kv = await this.#open();
    return this.#ask(`write ${key}`, () => kv.put(key, bytes));
  }

  /**
   * Writes only if `expected` is still the newest revision (undefined: only if the key has no value).
   *
   * @returns the new revision, or `undefined` if another process wrote first. A write whose answer was lost
   *   but which is found stored counts as done.
   */
  async compareAndSet<S extends z.ZodType>(
    schema: S,
    key: string,
    value: z.output<S>,
    expected: number | undefined,
  ): Promise<number | undefined> {
    const bytes = encode(schema, value);
    const kv = await this.#open();
    try {
      return await this.#ask(`write ${key}`, () =>
        expected === undefined ? kv.create(key, bytes) : kv.update(key, bytes, expected),
      );
    } catch (caught) {
      if (classify(caught) !== 'conflict') throw caught;
      const entry = await this.#entry(key);
      const isOurs = entry?.operation === 'PUT' && Buffer.from(entry.value).equals(bytes);
      return isOurs ? entry.revision : undefined;
    }
  }

  /** Whether the bucket exists and has ever been written to. */
  async isInUse(): Promise<boolean> {
    this.#isInUse ||= (await lastSequence(this.#link, `KV_${this.#bucket}`)) > 0;
    return this.#isInUse;
  }

  /**
   * Removes the key without leaving a deletion marker.
   *
   * @param revision if given, a newer value stays.
   */
  async delete(key: string, revision?: number): Promise<void> {
    const { jsm } = this.#link;
    const filter = `$KV.${this.#bucket}.${key}`;
    const upTo = revision === undefined ? { filter } : { filter, seq: revision + 1 }; // exclusive
    await askFor(this.#link, `delete ${key} of ${this.#bucket}`, () =>
      jsm.streams.purge(`KV_${this.#bucket}`, upTo),
    );
  }

  async keys(): Promise<string[]> {
    if (!(await this.isInUse())) return [];
    const { jsm } = this.#link;
    const prefix = `$KV.${this.#bucket}.`;
    const info = await askFor(this.#link, `list ${this.#bucket}`, () =>
      jsm.streams.info(`KV_${this.#bucket}`, { subjects_filter: `${prefix}>` }),
    );
    const subjects = Object.keys(info?.state.subjects ?? {});
    return subjects.map((subject) => subject.slice(prefix.length)).sort();
  }

  async #entry(key: string): Promise<KvEntry | undefined> {
    if (!(await this.isInUse())) return undefined; // nor may it be asked for a key, see lastSequence
    const kv = await this.#open();
    return (
      (await askFor(this.#link, `read ${key} of ${this.#bucket}`, () => kv.get(key))) ?? undefined
    );
  }

  #ask<T>(what: string, question: () => Promise<T>): Promise<T> {
    return ask(this.#link, `${what} of ${this.#bucket}`, question);
  }

  async #open(): Promise<KV> {
    // `bindOnly`: ensureRun creates the stream; the client would use other settings.
    this.#kv ??= await ask(this.#link, `open ${this.#bucket}`, () =>
      this.#link.js.views.kv(this.#bucket, { bindOnly: true, allow_direct: false }),
    );
    return this.#kv;
  }
}

const neverAborts = new AbortController().signal;
