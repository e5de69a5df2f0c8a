import { randomUUID } from 'node:crypto';
import type { StoredMsg } from 'nats';
import { Counter } from 'prom-client';
import { errorText, PermanentError, UserError } from '../errors.js';
import { ask, askFor, type Link } from './link.js';
import type { ObjectBucket } from './object-bucket.js';
import { traceHeader } from '../telemetry/tracing.js';
import { MessageHeaders } from './message-headers.js';
import { takesFrom } from './names.js';
import { bodyHeader, digestOf, publish, traceHeaders } from './publish.js';
import { lastSequence, stored, tail } from './tail.js';

const deadLettered = new Counter({
  name: 'broker_messages_dead_lettered_total',
  help: 'Messages that could not be processed and were put aside with a reason.',
  labelNames: ['stage'],
});

/** A message that could not be processed. */
export interface DeadLetter {
  readonly seq: number; // in the dead-letter stream
  readonly stage: string; // who gave it up: actor, reward, learner
  readonly reason: string;
  readonly subject: string; // where it was published first
  readonly msgId: string | undefined; // that it was published with, when known
  readonly trace?: string; // `traceparent` that came with it, if any did
  readonly data: Uint8Array; // as it was, unless that is `unreadable`
  readonly unreadable?: string; // which part of it cannot be read, and why; `data` is what there is
  readonly at: number; // ms since the epoch
}

/** What is known of a message that is given up. */
export interface Original {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly msgId?: string;
  readonly trace?: string; // `traceparent` that came with it
}

const fields = {
  reason: 'Offbeat-Reason',
  subject: 'Offbeat-Subject',
  msgId: 'Offbeat-Msg-Id',
} as const;

/** The messages of a run that could not be processed, kept for people and for the books. */
export class DeadLetters {
  readonly #link: Link;
  readonly #bodies: ObjectBucket;

  constructor(link: Link, bodies: ObjectBucket) {
    this.#link = link;
    this.#bodies = bodies;
  }

  /** @param id of this death: the same one is stored once, however often it is reported. */
  async store(
    stage: string,
    reason: string,
    original: Original,
    id: string = randomUUID(),
  ): Promise<void> {
    const { subject, data, msgId, trace } = original;
    const headers = {
      [fields.reason]: reason,
      [fields.subject]: subject,
      ...(msgId === undefined ? {} : { [fields.msgId]: msgId }),
      ...traceHeaders(trace),
    };
    const { isDuplicate } = await publish(
      this.#link,
      this.#bodies,
      { subject: this.#link.names.subjects.dead(stage), data, msgId: `dead-${id}`, headers },
      this.#link.signal,
    );
    if (isDuplicate) return;
    deadLettered.inc({ stage });
    this.#link.log.warn({ stage, subject, msgId, reason }, 'message given up');
  }

  /** Every dead letter from the first, then each new one, until the signal aborts. */
  async *read(signal: AbortSignal): AsyncGenerator<DeadLetter, void, undefined> {
    for await (const message of tail(this.#link, ...this.#everything, signal)) {
      yield await this.#letter(message);
    }
  }

  /** The dead letters so far. */
  async *past(signal: AbortSignal): AsyncGenerator<DeadLetter, void, undefined> {
    for await (const message of stored(this.#link, ...this.#everything, signal)) {
      yield await this.#letter(message);
    }
  }

  /** The one that came last, unless it was removed. */
  async newest(signal: AbortSignal): Promise<DeadLetter | undefined> {
    const [stream, subject] = this.#everything;
    const last = await lastSequence(this.#link, stream);
    if (last === 0) return undefined;
    for await (const message of stored(this.#link, stream, subject, signal, last)) {
      return await this.#letter(message);
    }
    return undefined;
  }

  /**
   * Why it is not published again; undefined if it may be. Its sender made up the subject in it, and
   * may not publish everywhere, where whoever replays it may.
   */
  refusal({ stage, subject, unreadable }: DeadLetter): string | undefined {
    if (unreadable !== undefined) return `it cannot be read whole, ${unreadable}; purge it`;
    if (takesFrom(this.#link.names, stage, subject)) return undefined;
    return `its subject is ${JSON.stringify(subject)}, and stage ${stage} takes no messages from there; purge it`;
  }

  /**
   * Publishes the message again where it came from. Resolves once it is stored there.
   *
   * @throws {UserError} if there is a `refusal`.
   */
  async replay(letter: DeadLetter, signal: AbortSignal): Promise<void> {
    const { seq, subject, data, trace } = letter;
    const refusal = this.refusal(letter);
    if (refusal !== undefined) {
      throw new UserError(`dead letter ${seq} cannot be replayed: ${refusal}`);
    }
    // Not its own id: the stream may remember that one and take the message for a repetition.
    const msgId = `replay-${seq}-${digestOf(letter)}`;
    await publish(
      this.#link,
      this.#bodies,
      { subject, data, msgId, headers: traceHeaders(trace) },
      signal,
    );
  }

  /** Removes one, and its body if that lies elsewhere. */
  async remove(seq: number): Promise<void> {
    const { jsm, names } = this.#link;
    const stream = names.streams.dead;
    const message = await askFor(this.#link, `read ${stream}`, () =>
      jsm.streams.getMessage(stream, { seq }),
    );
    if (message === undefined) return;
    await ask(this.#link, `remove ${seq} of ${stream}`, () =>
      jsm.streams.deleteMessage(stream, seq),
    );
    const object = new MessageHeaders(message).get(bodyHeader);
    if (object !== undefined) await this.#bodies.delete(object);
  }

  get #everything(): [stream: string, subject: string] {
    const { streams, subjects } = this.#link.names;
    return [streams.dead, subjects.dead('x').replace(/x$/, '*')];
  }

  async #letter(message: StoredMsg): Promise<DeadLetter> {
    const headers = new MessageHeaders(message);
    const trace = headers.get(traceHeader);
    return {
      seq: message.seq,
      stage: message.subject.split('.').at(-1)!, // NATS lets nobody publish there for another stage
      reason: headers.get(fields.reason) ?? '',
      subject: headers.get(fields.subject) ?? '',
      msgId: headers.get(fields.msgId),
      ...(trace !== undefined && { trace }),
      ...(headers.isMalformed
        ? { data: message.data, unreadable: 'its headers are malformed' }
        : await this.#body(message, headers.get(bodyHeader))),
      at: message.time.getTime(),
    };
  }

  /** Whoever may give messages up may name any object as the body, so a bad one must not fail a reader. */
  async #body(
    { data }: StoredMsg,
    object: string | undefined,
  ): Promise<Pick<DeadLetter, 'data' | 'unreadable'>> {
    if (object === undefined) return { data };
    try {
      const body = await this.#bodies.get(object);
      if (body !== undefined) return { data: body };
      return { data, unreadable: `its body ${object.slice(0, 100)} is not there` };
    } catch (caught) {
      if (!(caught instanceof PermanentError)) throw caught; // the link failed, and the body may well be good
      return { data, unreadable: errorText(caught) };
    }
  }
}
