import { type JsMsg, ErrorCode, NatsError } from 'nats';
import { Counter } from 'prom-client';
import { PermanentError, errorText } from '../base/errors.js';
import { traceHeader } from '../service/telemetry/tracing.js';
import type { DeathCause } from '../wire/death-cause.js';
import type { Broker } from './broker.js';
import { askFor } from './link.js';
import { MessageHeaders } from './message-headers.js';
import { digestOf, bodyHeader } from './publish.js';
import { retry } from './retry.js';
import { uploadHeader } from './uploads.js';

/** The part of a delivery that keeps its message leased and acknowledges it. */
export type Lease = Pick<MessageLease, 'seq' | 'working' | 'ack'>;

/** A message delivered to a consumer, to be settled once. */
export interface Delivery<T> {
  readonly seq: number; // in its stream
  readonly value: T;
  readonly subject: string;
  readonly deliveryCount: number; // 1 the first time
  readonly trace?: string | undefined; // `traceparent` of the span that caused it
  /** Keeps the message leased and acknowledges it; may be kept longer than the message's content. */
  readonly lease: Lease;
  /** Returns it to the queue, to be redelivered after `delayMs` or at once. */
  nak(delayMs?: number): void;
  /**
   * Dead-letters it with the reason and removes it from the queue.
   *
   * @param sender the actor to blame, if the subject does not name it. Each has an allowance of dead letters.
   */
  dead(reason: string, sender?: string): Promise<void>;
}

/** Settles one message: only the first ack, nak or dead takes effect. */
export class Settlement {
  readonly lease: MessageLease;
  readonly #broker: Broker;
  readonly #message: JsMsg;
  readonly #headers: MessageHeaders;
  readonly #stage: string;

  constructor(broker: Broker, message: JsMsg, stage: string) {
    this.lease = new MessageLease(broker, message, stage);
    this.#broker = broker;
    this.#message = message;
    this.#headers = new MessageHeaders(message);
    this.#stage = stage;
  }

  get trace(): string | undefined {
    return this.#headers.get(traceHeader);
  }

  nak(delayMs?: number): void {
    if (!this.lease.settle()) return;
    this.#message.nak(delayMs);
    this.lease.count('returned');
  }

  async dead(reason: string, cause?: DeathCause, sender?: string): Promise<void> {
    if (!this.lease.settle()) return;
    const { subject, seq, info } = this.#message;
    const msgId = this.#headers.get('Nats-Msg-Id');
    const data = async () => {
      try {
        return await this.body();
      } catch {
        return this.#message.data; // the body is unreadable, which may be why the message is dead-lettered
      }
    };
    const { trace } = this;
    const original = {
      ...{ subject, data },
      ...(msgId ? { msgId } : {}),
      ...(trace && { trace }),
      ...(sender !== undefined && { sender }),
    };
    // Digest of the queued message, not of its body, which may be gone when this is repeated.
    const id = `${info.stream}-${seq}-${digestOf({ data: this.#message.data, msgId })}`;
    await this.#broker.deadLetters.store(this.#stage, reason, original, id, cause);
    // Without a reason: nats-server 2.9 does not understand one and would redeliver the message.
    await this.lease.conclude('+TERM', 'dead');
  }

  /**
   * Returns the body of the message, wherever it is stored.
   *
   * @throws {PermanentError} if it can never be read: the headers are malformed or the body is damaged.
   * @throws {Error} if the body is missing: another holder may just have settled the message, which is then
   *   not redelivered.
   */
  async body(): Promise<Uint8Array> {
    const { subject, data } = this.#message;
    if (this.#headers.isMalformed)
      throw new PermanentError(`${subject}: its headers are malformed`);
    const { body } = this.lease;
    if (body === undefined) return data;
    const bytes = await body.read();
    if (bytes === undefined) throw new Error(`${subject}: its body ${body.name} is missing`);
    return bytes;
  }
}

const settled = new Counter({
  name: 'broker_messages_settled_total',
  help: 'Settled messages, by outcome.',
  labelNames: ['stage', 'outcome'],
});

/**
 * How many times an unanswered acknowledgement is sent again before the consumer is checked for existence. The server
 * reports missing responders, but not across accounts, where the request times out instead.
 */
const tries = new Map<string, number>([
  [ErrorCode.NoResponders, 8],
  [ErrorCode.Timeout, 1], // each attempt already waits
]);

/**
 * A delivered message without its content: the learner holds many until a checkpoint and should not keep
 * their content in memory.
 */
export class MessageLease {
  readonly seq: number; // in its stream
  readonly #broker: Broker;
  readonly #stage: string;
  readonly #stream: string;
  readonly #consumer: string;
  readonly #reply: string; // subject that takes the verdict
  /** Undefined if the message holds its own body, or if its headers are malformed. */
  readonly body: DistantBody | undefined;
  #isSettled = false;

  constructor(broker: Broker, message: JsMsg, stage: string) {
    this.#broker = broker;
    this.#stage = stage;
    this.seq = message.seq;
    this.#stream = message.info.stream;
    this.#consumer = message.info.consumer;
    // Every message of the client has it, but the interface does not declare it.
    this.#reply = (message as JsMsg & { readonly reply: string }).reply;
    this.body = distantBody(broker, message);
  }

  /** Restarts the ack wait. */
  working(): void {
    const { connection } = this.#broker.link;
    if (this.#isSettled || connection.isClosed() || connection.isDraining()) return;
    connection.publish(this.#reply, '+WPI');
  }

  /** Acknowledges the message; resolves when the server has confirmed. */
  async ack(): Promise<void> {
    if (this.settle()) await this.conclude('+ACK', 'acknowledged');
  }

  /** Marks the message as settled. @returns false if it already was. */
  settle(): boolean {
    if (this.#isSettled) return false;
    this.#isSettled = true;
    return true;
  }

  count(outcome: 'acknowledged' | 'returned' | 'dead'): void {
    settled.inc({ stage: this.#stage, outcome });
  }

  /** Removes the message from the queue and deletes its body. Resolves when the server has confirmed. */
  async conclude(verdict: '+ACK' | '+TERM', outcome: 'acknowledged' | 'dead'): Promise<void> {
    await this.#confirm(verdict);
    this.count(outcome);
    await this.#dropBody();
  }

  /** Resends until the server confirms, across its restarts: the client's own ackAck tries once. */
  async #confirm(verdict: '+ACK' | '+TERM'): Promise<void> {
    const { connection, log, outages, signal } = this.#broker.link;
    const what = `settle message ${this.seq} of ${this.#stream}`;
    await retry({ what, log, signal, outages }, async (before) => {
      try {
        await connection.request(this.#reply, verdict, { timeout: 5_000 });
      } catch (caught) {
        // Unanswered for this long, the consumer may have been deleted, and its deliveries with it.
        const resends = caught instanceof NatsError ? tries.get(caught.code) : undefined;
        if (before < (resends ?? Infinity) || (await this.#consumerExists())) throw caught;
        throw new Error(`cannot ${what}: its consumer is gone`, { cause: caught });
      }
    });
  }

  async #consumerExists(): Promise<boolean> {
    const { link } = this.#broker;
    const info = await askFor(link, `read the state of consumer ${this.#consumer}`, () =>
      link.jsm.consumers.info(this.#stream, this.#consumer),
    );
    return info !== undefined;
  }

  async #dropBody(): Promise<void> {
    try {
      await this.body?.delete();
    } catch (caught) {
      const { name: object } = this.body!;
      this.#broker.link.log.warn({ object, reason: errorText(caught) }, 'body not deleted'); // the sweep deletes it
    }
  }
}

/** A body that is stored outside its message because it was too large. Does not hold on to the message. */
interface DistantBody {
  readonly name: string; // for people
  /** @returns undefined if it is missing. @throws {PermanentError} if it can never be read. */
  read(): Promise<Uint8Array | undefined>;
  delete(): Promise<void>;
}

/** Locates the body of a message; undefined if the message holds its own body. */
function distantBody(
  { bodies, uploads, names }: Pick<Broker, 'bodies' | 'uploads' | 'names'>,
  message: Pick<JsMsg, 'headers' | 'data' | 'subject'>,
): DistantBody | undefined {
  const headers = new MessageHeaders(message);
  const object = headers.get(bodyHeader);
  if (object !== undefined) {
    return { name: object, read: () => bodies.get(object), delete: () => bodies.delete(object) };
  }
  if (headers.get(uploadHeader) === undefined) return undefined;
  const subject = names.uploadsOf(message.subject);
  const manifest = message.data.slice();
  let isRead = false;
  return {
    name: `among ${subject}`,
    read: async () => {
      const body = await uploads.get(subject, manifest);
      isRead = body !== undefined;
      return body;
    },
    delete: () => uploads.delete(subject, manifest, isRead),
  };
}
