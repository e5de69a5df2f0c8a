import { randomUUID } from 'node:crypto';
import { errorText } from '../errors.js';
import { decode, encode } from '../wire/codec.js';
import { RunEvent } from '../wire/run-event.js';
import type { Link } from './link.js';
import type { ObjectBucket } from './object-bucket.js';
import { publish } from './publish.js';
import { tail } from './tail.js';

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
  async *read(signal: AbortSignal): AsyncGenerator<RunEvent, void, undefined> {
    const { streams, subjects } = this.#link.names;
    const everything = subjects.event('x').replace(/x$/, '*');
    for await (const message of tail(this.#link, streams.events, everything, signal)) {
      try {
        yield decode(RunEvent, message.subject, message.data);
      } catch (caught) {
        this.#link.log.warn({ seq: message.seq, reason: errorText(caught) }, 'event skipped');
      }
    }
  }
}
