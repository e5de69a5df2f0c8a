import { randomUUID } from 'node:crypto';
import type { StoredMsg } from 'nats';
import { Counter } from 'prom-client';
import { errorText, PermanentError, UserError } from '../base/errors.js';
import { traceHeader } from '../service/telemetry/tracing.js';
import { DeathCause, deathCauses } from '../wire/death-cause.js';
import { Allowance } from './allowance.js';
import { ask, askFor, largestBody, type Link } from './link.js';
import { MessageHeaders } from './message-headers.js';
import { everyDeadLetter, nameToken, originOf, takesFrom } from './names.js';
import { NoRoom } from './object-bucket.js';
import { type BodyStores, bodyHeader, digestOf, publish, traceHeaders } from './publish.js';
import { lastSequence, stored, tail } from './tail.js';

const deadLettered = new Counter({
  name: 'broker_messages_dead_lettered_total',
  help: 'Messages that could not be processed and were dead-lettered with a reason, by its cause.',
  labelNames: ['stage', 'cause'],
});
const notKept = new Counter({
  name: 'broker_dead_letters_not_kept_total',
  help: 'Messages that were given up without a dead letter, because their sender had too many.',
  labelNames: ['stage'],
});

/** Exports a 0 for each cause, so that an alert can see the first letter of a stage. */
export function exportDeadLetters(stage: string): void {
  for (const cause of deathCauses) deadLettered.inc({ stage, cause }, 0);
}

/**
 * How many messages of one sender a process dead-letters: a burst, then a few an hour. The stream bounds those
 * of all senders. Dead letters inform people and the learner's accounting, which also finds lost tickets
 * without them.
 */
const letterAllowance = { atOnce: 100, perHour: 360 };
/** The same for letters whose whole body goes to the object store. Other large letters keep only the beginning. */
const wholeAllowance = { atOnce: 8, perHour: 1 / 24 };
const beginningBytes = 64 * 1024;

/** A message that could not be processed. */
export interface DeadLetter {
  readonly seq: number; // in the dead-letter stream
  readonly stage: string; // the stage that gave it up: actor, reward, learner
  readonly reason: string; // for people
  readonly cause: DeathCause; // for programs; `other` if the letter does not say
  readonly subject: string; // where it was originally published
  readonly msgId: string | undefined; // of the original message, when known
  readonly trace?: string; // `traceparent` of the original message, if it had one
  readonly data: Uint8Array; // the original body, unless `unreadable`
  readonly unreadable?: string; // which part cannot be read, and why; `data` is the rest
  readonly at: number; // ms since the epoch
}

/** A message to be dead-lettered. */
interface Original {
  readonly subject: string;
  readonly data: Uint8Array | (() => Promise<Uint8Array>); // called only if the letter is kept
  readonly msgId?: string;
  readonly trace?: string; // `traceparent` of the message
  readonly sender?: string; // the actor to blame, if the subject does not name it
}

const fields = {
  reason: 'Offbeat-Reason',
  cause: 'Offbeat-Cause',
  causeVersion: 'Offbeat-Cause-Version', // policy version, if the cause names one
  subject: 'Offbeat-Subject',
  msgId: 'Offbeat-Msg-Id',
  bytes: 'Offbeat-Bytes', // full size, if only the beginning is kept
} as const;

/** Prefix of the ids of dead letters and of the names of their bodies. */
export const deadPrefix = 'dead-';

/** The messages of a run that could not be processed, kept for people and for the learner's accounting. */
export class DeadLetters {
  readonly #link: Link;
  readonly #stores: BodyStores;
  readonly #actor: string | undefined;
  readonly #letters = new Allowance(letterAllowance);
  readonly #wholes = new Allowance(wholeAllowance);

  /** @param actor the actor as a token, if this process is one: it may write only its own letters. */
  constructor(link: Link, stores: BodyStores, actor?: string) {
    this.#link = link;
    this.#stores = stores;
    this.#actor = actor;
  }

  /**
   * Stores a dead letter, unless its sender has too many: then the message is only counted and logged.
   *
   * @param id of the dead letter: the same id is stored once, however often it is reported.
   * @param cause for programs; `reason` is for people.
   */
  async store(
    stage: string,
    reason: string,
    original: Original,
    id: string = randomUUID(),
    cause: DeathCause = { kind: 'other' },
  ): Promise<void> {
    const { subject, msgId, trace, sender } = original;
    const { log, names, signal } = this.#link;
    const origin = this.#actor ?? (sender === undefined ? originOf(subject) : nameToken(sender));
    // The learner acts on the other causes. Only actors give them, at most one for each ticket that they take.
    if (cause.kind === 'other' && !this.#letters.take(origin)) {
      notKept.inc({ stage });
      log.warn(
        { stage, subject, reason },
        'message given up without a dead letter: sender over its limit',
      );
      return;
    }
    const all = typeof original.data === 'function' ? await original.data() : original.data;
    const headers = {
      [fields.reason]: reason,
      [fields.cause]: cause.kind,
      ...('version' in cause ? { [fields.causeVersion]: String(cause.version) } : {}),
      [fields.subject]: subject,
      ...(msgId === undefined ? {} : { [fields.msgId]: msgId }),
      ...traceHeaders(trace),
    };
    const store = (data: Uint8Array) => {
      const cut = data === all ? {} : { [fields.bytes]: String(all.byteLength) };
      const message = {
        subject: names.subjects.dead(stage, origin),
        data,
        msgId: `${deadPrefix}${id}`,
        headers: { ...headers, ...cut },
      };
      const stores = { ...this.#stores, bodies: this.#stores.bodies.withoutWaiting() };
      return publish(this.#link, stores, message, signal);
    };
    // A consumer waits for this, so a full object store must not hold it up: then the beginning must suffice.
    const { isDuplicate } = await store(this.#kept(all, origin)).catch((caught: unknown) => {
      if (!(caught instanceof NoRoom)) throw caught;
      return store(this.#beginning(all));
    });
    if (isDuplicate) return;
    deadLettered.inc({ stage, cause: cause.kind });
    log.warn({ stage, subject, msgId, reason }, 'message given up');
  }

  /** The whole body, or its beginning if the sender has used up its share of the object store. */
  #kept(data: Uint8Array, origin: string): Uint8Array {
    if (data.byteLength <= largestBody(this.#link)) return data;
    const isWhole = this.#actor === undefined && this.#wholes.take(origin);
    return isWhole ? data : this.#beginning(data);
  }

  #beginning(data: Uint8Array): Uint8Array {
    return data.subarray(0, Math.min(beginningBytes, largestBody(this.#link)));
  }

  /** Yields every dead letter from the first, then each new one, until the signal aborts. */
  async *read(signal: AbortSignal): AsyncGenerator<DeadLetter, void, undefined> {
    for await (const message of tail(this.#link, ...this.#everything, signal)) {
      yield await this.#letter(message);
    }
  }

  /** Yields the dead letters stored so far. */
  async *past(signal: AbortSignal): AsyncGenerator<DeadLetter, void, undefined> {
    for await (const message of stored(this.#link, ...this.#everything, signal)) {
      yield await this.#letter(message);
    }
  }

  /** Returns one dead letter, unless it was removed. */
  async at(seq: number): Promise<DeadLetter | undefined> {
    if (seq < 1 || !Number.isSafeInteger(seq)) return undefined; // the server takes it for a wrong request
    const { jsm, names } = this.#link;
    const stream = names.streams.dead;
    const message = await askFor(this.#link, `read ${stream}`, () =>
      jsm.streams.getMessage(stream, { seq }),
    );
    return message && (await this.#letter(message));
  }

  /** Returns the newest dead letter, unless it was removed. */
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
   * Returns why a letter may not be replayed; undefined if it may. The sender chose the subject in the
   * letter, and the process that replays it may publish where the sender may not.
   */
  refusal({ stage, subject, unreadable }: DeadLetter): string | undefined {
    if (unreadable !== undefined) return `its body cannot be fully read (${unreadable}); purge it`;
    if (takesFrom(this.#link.names, stage, subject)) return undefined;
    return `its subject is ${JSON.stringify(subject)}, and stage ${stage} takes no messages from there; purge it`;
  }

  /**
   * Publishes the message again to its original subject. Resolves once it is stored there.
   *
   * @throws {UserError} if `refusal` gives a reason.
   */
  async replay(letter: DeadLetter, signal: AbortSignal): Promise<void> {
    const { seq, subject, data, trace } = letter;
    const refusal = this.refusal(letter);
    if (refusal !== undefined) {
      throw new UserError(`dead letter ${seq} cannot be replayed: ${refusal}`);
    }
    // A new id: the stream may remember the original one and drop the message as a duplicate.
    const msgId = `replay-${seq}-${digestOf(letter)}`;
    await publish(
      this.#link,
      this.#stores,
      { subject, data, msgId, headers: traceHeaders(trace) },
      signal,
    );
  }

  /** Removes a dead letter and its body in the object store, if it has one. */
  async remove(seq: number): Promise<void> {
    const { jsm, names } = this.#link;
    const stream = names.streams.dead;
    const message = await askFor(this.#link, `read ${stream}`, () =>
      jsm.streams.getMessage(stream, { seq }),
    );
    if (message === undefined) return;
    await ask(this.#link, `delete message ${seq} of ${stream}`, () =>
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
    // Letters older than this header, and causes that only newer versions know, are `other`.
    const cause = DeathCause.safeParse({
      kind: headers.get(fields.cause),
      version: headers.get(fields.causeVersion),
    });
    return {
      seq: message.seq,
      stage: message.subject.split('.')[3]!, // NATS permissions prevent publishing for another stage
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

  /** Reads the body. A sender may name any object as the body, so an invalid one must not fail the reader. */
  async #body(
    { data }: StoredMsg,
    object: string | undefined,
    allBytes: string | undefined,
  ): Promise<Pick<DeadLetter, 'data' | 'unreadable'>> {
    if (allBytes !== undefined) {
      const unreadable = `only the first ${data.byteLength} of its ${allBytes.slice(0, 20)} bytes were kept`;
      return { data, unreadable };
    }
    if (object === undefined) return { data };
    try {
      const body = await this.#stores.bodies.get(object);
      if (body !== undefined) return { data: body };
      return { data, unreadable: `its body ${object.slice(0, 100)} is missing` };
    } catch (caught) {
      if (!(caught instanceof PermanentError)) throw caught; // the connection failed; the body may be intact
      return { data, unreadable: errorText(caught) };
    }
  }
}
