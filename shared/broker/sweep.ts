import { Counter } from 'prom-client';
import { z } from 'zod';
import { deadPrefix } from './dead-letters.js';
import { ask, askFor, type Link, streamState } from './link.js';
import { MessageHeaders } from './message-headers.js';
import { everyDeadLetter } from './names.js';
import type { ObjectBucket } from './object-bucket.js';
import { bodyHeader } from './publish.js';
import { stored } from './tail.js';

const swept = new Counter({
  name: 'broker_bodies_swept_total',
  help: 'Abandoned bodies of large messages that were deleted, by where they were stored.',
  labelNames: ['kind'],
});

export const sweepEveryMs = 60_000;

/** Longer than the time between storing a body and publishing its message. */
const usualGraceMs = 30 * 60_000;

const Entry = z.looseObject({ nuid: z.string(), name: z.string() });

/**
 * Deletes bodies that no message refers to: a process died between storing a body and publishing its message,
 * or between settling a message and deleting its body, or an actor stored a body that it never referred to.
 *
 * A body is stored before its message. So a body that is older than the oldest waiting message, by a grace
 * period, belongs to none of them. All times are from the server's clock, since the clocks of services may
 * jump.
 */
export class Sweep {
  readonly #link: Link;
  readonly #bodies: ObjectBucket;
  readonly #graceMs: number;

  constructor(link: Link, bodies: ObjectBucket, graceMs = usualGraceMs) {
    this.#link = link;
    this.#bodies = bodies;
    this.#graceMs = graceMs;
  }

  /** Sweeps once. Does nothing before the first leader lease, whose timestamp gives the server's time. */
  async run(): Promise<void> {
    const now = await this.#time(`KV_${this.#link.names.buckets.ledger}`, 'last_ts');
    if (now === undefined) return;
    await this.#sweepUploads(now);
    await this.#sweepObjects(now);
  }

  async #sweepUploads(now: number): Promise<void> {
    const { names, jsm, log } = this.#link;
    const stream = names.streams.uploads;
    const state = await streamState(this.#link, stream);
    if (state === undefined || state.messages === 0) return;
    const oldest = (await this.#time(names.streams.rollouts, 'first_ts')) ?? now;
    const before = Math.min(now, oldest) - this.#graceMs;
    if (Date.parse(state.first_ts) >= before) return;

    // Binary search: messages are ordered by time.
    let [low, high] = [state.first_seq, state.last_seq + 1];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const query = { seq: middle, next_by_subj: names.subjects.uploads('x').replace(/x$/, '*') };
      const message = await askFor(this.#link, `read ${stream}`, () =>
        jsm.streams.getMessage(stream, query),
      );
      if (message === undefined || message.time.getTime() >= before) high = middle;
      else low = message.seq + 1;
    }
    const { purged } = await ask(this.#link, `sweep ${stream}`, () =>
      jsm.streams.purge(stream, { seq: low }),
    );
    if (purged > 0) {
      swept.inc({ kind: 'upload' }, purged);
      log.info({ stream, chunks: purged }, 'abandoned uploads deleted');
    }
  }

  async #sweepObjects(now: number): Promise<void> {
    const { names, log } = this.#link;
    const bucket = names.objects.bodies;
    const stream = `OBJ_${bucket}`;
    const state = await streamState(this.#link, stream);
    if (state === undefined || state.messages === 0) return;
    const isOld = Date.parse(state.first_ts) < now - this.#graceMs;
    if (!isOld) return;
    const subjects = Object.keys(
      (await streamState(this.#link, stream, `$O.${bucket}.>`))?.subjects ?? {},
    );
    const waiting = await Promise.all(
      [names.streams.scored, names.streams.rollouts].map((queue) => this.#time(queue, 'first_ts')),
    );
    const ofQueues = Math.min(now, ...waiting.map((time) => time ?? now)) - this.#graceMs;
    let letters: Promise<ReadonlySet<string>> | undefined;
    const isAbandoned = async (name: string, time: number): Promise<boolean> => {
      if (!name.startsWith(deadPrefix)) return time < ofQueues;
      if (time >= now - this.#graceMs) return false;
      return !(await (letters ??= this.#bodiesOfLetters())).has(name);
    };

    const kept = new Set<string>();
    for (const subject of subjects.filter((each) => each.startsWith(`$O.${bucket}.M.`))) {
      const message = await this.#first(stream, subject);
      if (message === undefined) continue;
      const entry = entryIn(message.data);
      if (entry === undefined) continue; // damaged
      if (await isAbandoned(entry.name, message.time.getTime())) {
        await this.#bodies.delete(entry.name);
        swept.inc({ kind: 'object' });
        log.info({ object: entry.name }, 'abandoned body deleted');
      } else kept.add(`$O.${bucket}.C.${entry.nuid}`);
    }
    for (const subject of subjects.filter((each) => each.startsWith(`$O.${bucket}.C.`))) {
      if (kept.has(subject)) continue;
      const message = await this.#first(stream, subject);
      if (message === undefined || message.time.getTime() >= now - this.#graceMs) continue;
      await ask(this.#link, `sweep ${stream}`, () =>
        this.#link.jsm.streams.purge(stream, { filter: subject }),
      );
      swept.inc({ kind: 'object' });
      log.info({ stream, subject }, 'abandoned chunks deleted');
    }
  }

  /** Returns the names of the objects that are bodies of dead letters. */
  async #bodiesOfLetters(): Promise<ReadonlySet<string>> {
    const { names, signal } = this.#link;
    const found = new Set<string>();
    for await (const message of stored(
      this.#link,
      names.streams.dead,
      everyDeadLetter(names),
      signal,
    )) {
      const object = new MessageHeaders(message).get(bodyHeader);
      if (object !== undefined) found.add(object);
    }
    signal.throwIfAborted(); // reading was cut short
    return found;
  }

  #first(stream: string, subject: string) {
    const query = { seq: 1, next_by_subj: subject };
    return askFor(this.#link, `read ${stream}`, () =>
      this.#link.jsm.streams.getMessage(stream, query),
    );
  }

  /**
   * Returns when the first or last message of a stream was stored, in ms since the epoch; undefined if it is empty.
   */
  async #time(stream: string, which: 'first_ts' | 'last_ts'): Promise<number | undefined> {
    const state = await streamState(this.#link, stream);
    return state === undefined || state.messages === 0 ? undefined : Date.parse(state[which]);
  }
}

function entryIn(data: Uint8Array): z.output<typeof Entry> | undefined {
  try {
    return Entry.parse(JSON.parse(new TextDecoder().decode(data)));
  } catch {
    return undefined;
  }
}
