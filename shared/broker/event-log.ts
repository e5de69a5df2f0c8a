import { randomUUID } from 'node:crypto';
import { errorText } from '../base/errors.js';
import { decode, encode } from '../wire/codec.js';
import { type EventOf, RunEvent } from '../wire/run-event.js';
import { shorterEvents } from '../wire/shorter-event.js';
import { classify } from './failures.js';
import { askFor, largestBody, type Link } from './link.js';
import { type BodyStores, publish } from './publish.js';
import { lastSequence, stored, tail } from './tail.js';

/**
 * The run's history, written by one learner at a time. Each event names the sequence number of its
 * predecessor, and the server stores it only if that is the stream's newest. So the first event of a new
 * leader fences the former one, even if that was suspended for an hour: its late events are refused, never
 * stored after the history of its successor.
 */
export class EventLog {
  readonly #link: Link;
  readonly #stores: BodyStores;
  /** Sequence number of the newest event, as far as this writer knows. */
  #newest: number | undefined;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(link: Link, stores: BodyStores) {
    this.#link = link;
    this.#stores = stores;
  }

  /** Makes this process the writer: the server refuses later events of a former leader. */
  lead(holder: string): Promise<void> {
    return this.#inTurn(async () => {
      do {
        this.#newest = await lastSequence(this.#link, this.#link.names.streams.events);
        // If the former leader adds one last event in between, try again after it.
      } while (!(await this.#append({ v: 1, at: Date.now(), kind: 'leader', holder })));
    });
  }

  /**
   * Appends an event. Resolves when the stream has stored it and every event emitted before it.
   *
   * @throws {Error} if another learner has started to write, so this one no longer leads.
   */
  emit(event: RunEvent): Promise<void> {
    return this.#inTurn(async () => {
      this.#newest ??= await lastSequence(this.#link, this.#link.names.streams.events);
      if (await this.#append(event)) return;
      throw new Error(
        `the history of run ${this.#link.names.run} has changed since this learner wrote to it: another one leads, ` +
          'or the server has lost what it acknowledged; this one must stop and start from the last checkpoint',
      );
    });
  }

  #inTurn<T>(write: () => Promise<T>): Promise<T> {
    const written = this.#turn.then(write);
    this.#turn = written.catch(() => undefined);
    return written;
  }

  /** @returns false if the stream's newest event is not the expected predecessor. */
  async #append(event: RunEvent): Promise<boolean> {
    const after = this.#newest!;
    const subject = this.#link.names.subjects.event(event.kind);
    // A random id only deduplicates retries: a resumed run may legitimately repeat a step.
    const outgoing = { subject, data: this.#encoded(event), msgId: randomUUID(), after };
    try {
      const { seq } = await publish(this.#link, this.#stores, outgoing, this.#link.signal);
      this.#newest = seq;
      return true;
    } catch (caught) {
      if (classify(caught) !== 'conflict') throw caught;
      // An earlier attempt may have been stored although its answer was lost.
      if ((await this.#idAt(after + 1)) !== outgoing.msgId) return false;
      this.#newest = after + 1;
      return true;
    }
  }

  /** The event as one message, shortened if it is larger than the server takes: readers get no body from elsewhere. */
  #encoded(event: RunEvent): Uint8Array {
    const whole = encode(RunEvent, event);
    let data = whole;
    for (const shorter of shorterEvents(event)) {
      if (data.byteLength <= largestBody(this.#link)) break;
      data = encode(RunEvent, shorter);
    }
    if (data !== whole) {
      const [bytes, kept] = [whole.byteLength, data.byteLength];
      this.#link.log.warn(
        { kind: event.kind, bytes, kept },
        'event shortened: it is too large for a message',
      );
    }
    return data;
  }

  /** Returns the message id at a sequence number. */
  async #idAt(seq: number): Promise<string | undefined> {
    const stream = this.#link.names.streams.events;
    const message = await askFor(this.#link, `read ${stream}`, () =>
      this.#link.jsm.streams.getMessage(stream, { seq }),
    );
    return message?.header.get('Nats-Msg-Id');
  }

  /** Yields every event from the first, then each new one, until the signal aborts. */
  read(signal: AbortSignal): AsyncGenerator<RunEvent, void, undefined> {
    return this.#decoded(tail(this.#link, ...this.#everything, signal));
  }

  /** Yields the events stored so far. */
  past(signal: AbortSignal): AsyncGenerator<RunEvent, void, undefined> {
    return this.#decoded(stored(this.#link, ...this.#everything, signal));
  }

  /**
   * Returns the newest `count` events of a kind, or fewer if there are fewer, oldest first. The server finds the next
   * message of a subject, not the one before, so the search begins further back until there are enough.
   */
  async latest<Kind extends RunEvent['kind']>(
    kind: Kind,
    count: number,
    signal: AbortSignal,
  ): Promise<EventOf<Kind>[]> {
    const newest = await this.#newestOf(kind);
    if (newest === undefined) return [];
    const { names } = this.#link;
    for (let back = 2 * count; ; back *= 2) {
      const first = Math.max(1, newest.seq - back);
      const events: EventOf<Kind>[] = [];
      const subject = names.subjects.event(kind);
      const messages = stored(this.#link, names.streams.events, subject, signal, first);
      for await (const event of this.#decoded(messages, kind)) events.push(event);
      if (events.length >= count || first === 1 || signal.aborted) return events.slice(-count);
    }
  }

  /** Yields every stored event of a kind, oldest first. */
  every<Kind extends RunEvent['kind']>(kind: Kind): AsyncGenerator<EventOf<Kind>, void, undefined> {
    const { names, signal } = this.#link;
    const messages = stored(this.#link, names.streams.events, names.subjects.event(kind), signal);
    return this.#decoded(messages, kind);
  }

  /** Counts the events other than changes of the leader: 0 in a run that has not started. */
  async count(): Promise<number> {
    const { names, jsm } = this.#link;
    const stream = names.streams.events;
    if ((await lastSequence(this.#link, stream)) === 0) return 0;
    const info = await askFor(this.#link, `count the events in ${stream}`, () =>
      jsm.streams.info(stream, { subjects_filter: '>' }),
    );
    const { [names.subjects.event('leader')]: _leaders, ...rest } = info?.state.subjects ?? {};
    return Object.values(rest).reduce((sum, messages) => sum + messages, 0);
  }

  /** Returns the newest event of a kind, if it exists and is readable. */
  async newest<Kind extends RunEvent['kind']>(kind: Kind): Promise<EventOf<Kind> | undefined> {
    const message = await this.#newestOf(kind);
    if (message === undefined) return undefined;
    for await (const event of this.#decoded([message], kind)) return event;
    return undefined;
  }

  async #newestOf(kind: RunEvent['kind']): Promise<StoredMessage | undefined> {
    const { names, jsm } = this.#link;
    const stream = names.streams.events;
    if ((await lastSequence(this.#link, stream)) === 0) return undefined;
    const query = { last_by_subj: names.subjects.event(kind) };
    return askFor(this.#link, `read ${stream}`, () => jsm.streams.getMessage(stream, query));
  }

  /** @param kind leaves out events of another kind than their subject's. */
  async *#decoded<Kind extends RunEvent['kind']>(
    messages: AsyncIterable<StoredMessage> | Iterable<StoredMessage>,
    kind?: Kind,
  ): AsyncGenerator<EventOf<Kind>, void, undefined> {
    for await (const { subject, data, seq } of messages) {
      try {
        const event = decode(RunEvent, subject, data);
        if (kind === undefined || event.kind === kind) yield event as EventOf<Kind>;
      } catch (caught) {
        this.#link.log.warn({ seq, reason: errorText(caught) }, 'unreadable event skipped');
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
