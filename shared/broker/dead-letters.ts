import { randomUUID } from 'node:crypto';
import type { StoredMsg } from 'nats';
import { Counter } from 'prom-client';
import { errorText, PermanentError, UserError } from '../base/errors.js';
import { traceHeader } from '../service/telemetry/tracing.js';
import { DeathCause } from '../wire/death-cause.js';
import { Allowance } from './allowance.js';
import { ask, askFor, largestBody, type Link } from './link.js';
import { MessageHeaders } from './message-headers.js';
import { everyDeadLetter, originOf, takesFrom } from './names.js';
import { type BodyStores, bodyHeader, digestOf, publish, traceHeaders } from './publish.js';
import { lastSequence, stored, tail } from './tail.js';

const deadLettered = new Counter({
  name: 'broker_messages_dead_lettered_total',
  help: 'Messages that could not be processed and were put aside with a reason.',
  labelNames: ['stage'],
});
const notKept = new Counter({
  name: 'broker_dead_letters_not_kept_total',
  help: 'Messages that were given up without being put aside, since their sender had too many.',
  labelNames: ['stage'],
});

/**
 * How many messages of one sender a process puts aside: some at once, then a few. They are for people and for
 * the books, and the books also find out by themselves what was lost.
 */
const letterAllowance = { atOnce: 100, perHour: 360 };
/** The same of those whose whole body goes to the object store. Of others the beginning is kept. */
const wholeAllowance = { atOnce: 8, perHour: 1 / 24 };
const beginningBytes = 64 * 1024;

/** A message that could not be processed. */
export interface DeadLetter {
  readonly seq: number; // in the dead-letter stream
  readonly stage: string; // who gave it up: actor, reward, learner
  readonly reason: string; // a sentence for people
  readonly cause: DeathCause; // what programs decide by; `other` if the letter does not say
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
  readonly data: Uint8Array | (() => Promise<Uint8Array>); // asked for only if it is kept
  readonly msgId?: string;
  readonly trace?: string; // `traceparent` that came with it
}

const fields = {
  reason: 'Offbeat-Reason',
  cause: 'Offbeat-Cause',
  causeVersion: 'Offbeat-Cause-Version', // of the policy, where the cause names one
  subject: 'Offbeat-Subject',
  msgId: 'Offbeat-Msg-Id',
  bytes: 'Offbeat-Bytes', // of the whole, where only its beginning is kept
} as const;

/** What the ids of dead letters begin with, and so the names of their bodies. */
export const deadPrefix = 'dead-';

/** The messages of a run that could not be processed, kept for people and for the books. */
export class DeadLetters {
  readonly #link: Link;
  readonly #stores: BodyStores;
  readonly #actor: string | undefined;
  readonly #letters = new Allowance(letterAllowance);
  readonly #wholes = new Allowance(wholeAllowance);

  /** @param actor as a token, if it is an actor that gives up: it may write letters of its own alone. */
  constructor(link: Link, stores: BodyStores, actor?: string) {
    this.#link = link;
    this.#stores = stores;
    this.#actor = actor;
  }

  /**
   * Puts a message aside, unless its sender has too many here: then it is only counted and logged.
   *
   * @param id of this death: the same one is stored once, however often it is reported.
   * @param cause what programs decide by; the reason is for people.
   */
  async store(
    stage: string,
    reason: string,
    original: Original,
    id: string = randomUUID(),
    cause: DeathCause = { kind: 'other' },
  ): Promise<void> {
    const { subject, msgId, trace } = original;
    const { log, names, signal } = this.#link;
    const origin = this.#actor ?? originOf(subject);
    if (!this.#letters.take(origin)) {
      notKept.inc({ stage });
      log.warn(
        { stage, subject, reason },
        'message given up and not put aside: too many of one sender',
      );
      return;
    }
    const all = typeof original.data === 'function' ? await original.data() : original.data;
    const data = this.#kept(all, origin);
    const headers = {
      [fields.reason]: reason,
      [fields.cause]: cause.kind,
      ...('version' in cause ? { [fields.causeVersion]: String(cause.version) } : {}),
      [fields.subject]: subject,
      ...(msgId === undefined ? {} : { [fields.msgId]: msgId }),
      ...(data === all ? {} : { [fields.bytes]: String(all.byteLength) }),
      ...traceHeaders(trace),
    };
    const { isDuplicate } = await publish(
      this.#link,
      this.#stores,
      { subject: names.subjects.dead(stage, origin), data, msgId: `${deadPrefix}${id}`, headers },
      signal,
    );
    if (isDuplicate) return;
    deadLettered.inc({ stage });
    log.warn({ stage, subject, msgId, reason }, 'message given up');
  }

  /** All of it, or its beginning where the whole would take more of the object store than its sender may. */
  #kept(data: Uint8Array, origin: string): Uint8Array {
    if (data.byteLength <= largestBody(this.#link)) return data;
    const isWhole = this.#actor === undefined && this.#wholes.take(origin);
    return isWhole ? data : data.subarray(0, Math.min(beginningBytes, largestBody(this.#link)));
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
      this.#stores,
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
    if (object !== undefined) await this.#stores.bodies.delete(object);
  }

  get #everything(): [stream: string, subject: string] {
    const { names } = this.#link;
    return [names.streams.dead, everyDeadLetter(names)];
  }

  async #letter(message: StoredMsg): Promise<DeadLetter> {
    const headers = new MessageHeaders(message);
    const trace = headers.get(traceHeader);
    // Letters of before the header existed, and causes that only newer programs know, are `other`.
    const cause = DeathCause.safeParse({
      kind: headers.get(fields.cause),
      version: headers.get(fields.causeVersion),
    });
    return {
      seq: message.seq,
      stage: message.subject.split('.')[3]!, // NATS lets nobody publish there for another stage
      reason: headers.get(fields.reason) ?? '',
      cause: cause.data ?? { kind: 'other' },
      subject: headers.get(fields.subject) ?? '',
      msgId: headers.get(fields.msgId),
      ...(trace !== undefined && { trace }),
      ...(headers.isMalformed
        ? { data: message.data, unreadable: 'its headers are malformed' }
        : await this.#body(message, headers.get(bodyHeader), headers.get(fields.bytes))),
      at: message.time.getTime(),
    };
  }

  /** Whoever may give messages up may name any object as the body, so a bad one must not fail a reader. */
  async #body(
    { data }: StoredMsg,
    object: string | undefined,
    allBytes: string | undefined,
  ): Promise<Pick<DeadLetter, 'data' | 'unreadable'>> {
    if (allBytes !== undefined) {
      const unreadable = `of its ${allBytes.slice(0, 20)} bytes only the first ${data.byteLength} were kept`;
      return { data, unreadable };
    }
    if (object === undefined) return { data };
    try {
      const body = await this.#stores.bodies.get(object);
      if (body !== undefined) return { data: body };
      return { data, unreadable: `its body ${object.slice(0, 100)} is not there` };
    } catch (caught) {
      if (!(caught instanceof PermanentError)) throw caught; // the link failed, and the body may well be good
      return { data, unreadable: errorText(caught) };
    }
  }
}
