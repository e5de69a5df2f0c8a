import { randomUUID } from 'node:crypto';
import { errorText } from '../errors.js';
import { decode, encode } from '../wire/codec.js';
import { RunEvent } from '../wire/run-event.js';
import { askFor, type Link } from './link.js';
import type { ObjectBucket } from './object-bucket.js';
import { publish } from './publish.js';
import { lastSequence, stored, tail } from './tail.js';

/** The run's history. */
export class EventLog {
  readonly #link: Link;
  readonly #bodies: ObjectBucket;

  constructor(link: Link, bodies: ObjectBucket) {
    this.#link = link;
    this.#bodies = bodies;
  }

  async emit(event: RunEvent): Promise<void> {
    const subject = this.#link.names.subjects.event(event.kind);
    // The id only keeps a repeated attempt from being a second event: a resumed run may rightly
    // come by the same step again.
    const outgoing = { subject, data: encode(RunEvent, event), msgId: randomUUID() };
    await publish(this.#link, this.#bodies, outgoing, this.#link.signal);
  }

  /** Every event from the first, then each new one as it happens, until the signal aborts. */
  read(signal: AbortSignal): AsyncGenerator<RunEvent, void, undefined> {
    return this.#decoded(tail(this.#link, ...this.#everything, signal));
  }

  /** The events so far. */
  past(signal: AbortSignal): AsyncGenerator<RunEvent, void, undefined> {
    return this.#decoded(stored(this.#link, ...this.#everything, signal));
  }

  /** The newest `count` events, or as many as there are, oldest first. */
  async *latest(count: number, signal: AbortSignal): AsyncGenerator<RunEvent, void, undefined> {
    const [stream, subject] = this.#everything;
    const last = await lastSequence(this.#link, stream);
    yield* this.#decoded(
      stored(this.#link, stream, subject, signal, Math.max(1, last - count + 1)),
    );
  }

  /** The newest event of a kind, if there is one that can be read. */
  async newest<Kind extends RunEvent['kind']>(
    kind: Kind,
  ): Promise<Extract<RunEvent, { kind: Kind }> | undefined> {
    const { names, jsm } = this.#link;
    const stream = names.streams.events;
    if ((await lastSequence(this.#link, stream)) === 0) return undefined;
    const query = { last_by_subj: names.subjects.event(kind) };
    const message = await askFor(this.#link, `read ${stream}`, () =>
      jsm.streams.getMessage(stream, query),
    );
    if (message === undefined) return undefined;
    for await (const event of this.#decoded([message])) {
      if (event.kind === kind) return event as Extract<RunEvent, { kind: Kind }>;
    }
    return undefined;
  }

  async *#decoded(
    messages: AsyncIterable<StoredMessage> | Iterable<StoredMessage>,
  ): AsyncGenerator<RunEvent, void, undefined> {
    for await (const { subject, data, seq } of messages) {
      try {
        yield decode(RunEvent, subject, data);
      } catch (caught) {
        this.#link.log.warn({ seq, reason: errorText(caught) }, 'event skipped');
      }
    }
  }

  /** The stream of the events, and their subjects. */
  get #everything(): [stream: string, subject: string] {
    const { streams, subjects } = this.#link.names;
    return [streams.events, subjects.event('x').replace(/x$/, '*')];
  }
}

interface StoredMessage {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly seq: number;
}
