import { randomUUID } from 'node:crypto';
import { errorText } from '../base/errors.js';
import { decode, encode } from '../wire/codec.js';
import { RunEvent } from '../wire/run-event.js';
import { classify } from './failures.js';
import { askFor, type Link } from './link.js';
import { type BodyStores, publish } from './publish.js';
import { lastSequence, stored, tail } from './tail.js';

/**
 * The run's history, which one learner writes at a time. Each event names the sequence number of the
 * one before it, and the server stores it only if that is the stream's newest. So the first event of a
 * new leader shuts the former one out, also if that was stopped for an hour and does not know it: what
 * it still sends is refused, never stored behind the history of its successor.
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

  /** Makes this process the one that writes: no event of a former leader is stored from now on. */
  lead(holder: string): Promise<void> {
    return this.#inTurn(async () => {
      do {
        this.#newest = await lastSequence(this.#link, this.#link.names.streams.events);
        // Should the former leader add one last event in between, this one comes after that.
      } while (!(await this.#append({ v: 1, at: Date.now(), kind: 'leader', holder })));
    });
  }

  /**
   * Adds an event. Resolves when the stream has it, and with it every event that was emitted before.
   *
   * @throws {Error} if another learner has begun to write: this one leads no more.
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

  /** @returns false if the newest event is not the one that it was to follow. */
  async #append(event: RunEvent): Promise<boolean> {
    const after = this.#newest!;
    const subject = this.#link.names.subjects.event(event.kind);
    // The id only keeps a repeated attempt from being a second event: a resumed run may rightly
    // come by the same step again.
    const outgoing = { subject, data: encode(RunEvent, event), msgId: randomUUID(), after };
    try {
      const { seq } = await publish(this.#link, this.#stores, outgoing, this.#link.signal);
      this.#newest = seq;
      return true;
    } catch (caught) {
      if (classify(caught) !== 'conflict') throw caught;
      // An earlier attempt may have been stored without its answer reaching us.
      if ((await this.#idAt(after + 1)) !== outgoing.msgId) return false;
      this.#newest = after + 1;
      return true;
    }
  }

  /** The id that the message at a sequence number was published under. */
  async #idAt(seq: number): Promise<string | undefined> {
    const stream = this.#link.names.streams.events;
    const message = await askFor(this.#link, `read ${stream}`, () =>
      this.#link.jsm.streams.getMessage(stream, { seq }),
    );
    return message?.header.get('Nats-Msg-Id');
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

  /** Every event of a kind so far, oldest first. */
  async *every<Kind extends RunEvent['kind']>(
    kind: Kind,
  ): AsyncGenerator<Extract<RunEvent, { kind: Kind }>, void, undefined> {
    const { names, signal } = this.#link;
    const messages = stored(this.#link, names.streams.events, names.subjects.event(kind), signal);
    for await (const event of this.#decoded(messages)) {
      if (event.kind === kind) yield event as Extract<RunEvent, { kind: Kind }>;
    }
  }

  /** How many events there are, those left out that only say who leads: 0 in a run that has not begun. */
  async count(): Promise<number> {
    const { names, jsm } = this.#link;
    const stream = names.streams.events;
    if ((await lastSequence(this.#link, stream)) === 0) return 0;
    const info = await askFor(this.#link, `count ${stream}`, () =>
      jsm.streams.info(stream, { subjects_filter: '>' }),
    );
    const { [names.subjects.event('leader')]: _leaders, ...rest } = info?.state.subjects ?? {};
    return Object.values(rest).reduce((sum, messages) => sum + messages, 0);
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
