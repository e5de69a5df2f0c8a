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

/** What it takes to keep a message and to acknowledge it. */
export type Lease = Pick<MessageLease, 'seq' | 'working' | 'ack'>;

/** A message in the hands of a consumer, to be settled once. */
export interface Delivery<T> extends Lease {
  readonly value: T;
  readonly subject: string;
  readonly deliveryCount: number; // 1 the first time
  readonly trace?: string | undefined; // `traceparent` of the span that led to it
  /** For who settles it when its content is long of no use: it alone keeps nothing of that. */
  readonly lease: Lease;
  /** Gives it back, to be delivered again after `delayMs` or at once. */
  nak(delayMs?: number): void;
  /** Puts it aside with the reason, and out of the queue. */
  dead(reason: string): Promise<void>;
}

/** The settling of one message: whatever comes after the first ack, nak or dead does nothing. */
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

  async dead(reason: string, cause?: DeathCause): Promise<void> {
    if (!this.lease.settle()) return;
    const { subject, seq, info } = this.#message;
    const msgId = this.#headers.get('Nats-Msg-Id');
    const data = async () => {
      try {
        return await this.body();
      } catch {
        return this.#message.data; // its body cannot be had, which may be why it dies
      }
    };
    const { trace } = this;
    const original = { subject, data, ...(msgId ? { msgId } : {}), ...(trace && { trace }) };
    // By what the queue holds, not by a body that may be gone when this is told again.
    const id = `${info.stream}-${seq}-${digestOf({ data: this.#message.data, msgId })}`;
    await this.#broker.deadLetters.store(this.#stage, reason, original, id, cause);
    // Bare: nats-server 2.9 does not understand a reason and would deliver it again.
    await this.lease.conclude('+TERM', 'dead');
  }

  /**
   * What the message says, wherever that lies.
   *
   * @throws {PermanentError} if that can never be read: its headers are malformed, its body is damaged.
   * @throws {Error} if its body is not there: another holder of the message may just have settled it, and
   *   then it does not come again.
   */
  async body(): Promise<Uint8Array> {
    const { subject, data } = this.#message;
    if (this.#headers.isMalformed)
      throw new PermanentError(`${subject}: its headers are malformed`);
    const { body } = this.lease;
    if (body === undefined) return data;
    const bytes = await body.read();
    if (bytes === undefined) throw new Error(`${subject}: its body ${body.name} is not there`);
    return bytes;
  }
}

const settled = new Counter({
  name: 'broker_messages_settled_total',
  help: 'Messages by what became of them.',
  labelNames: ['stage', 'outcome'],
});

/**
 * How often an unanswered verdict is sent again before it is looked whether anybody is there to hear
 * it. The server says that nobody listens; but not to who works from another account than that of the streams.
 */
const tries = new Map<string, number>([
  [ErrorCode.NoResponders, 8],
  [ErrorCode.Timeout, 1], // each waits by itself
]);

/**
 * A message in the hands of a consumer without its content: who holds many for long, as the learner
 * does until a checkpoint, need not keep in memory what it has no more use for.
 */
export class MessageLease {
  readonly seq: number; // in its stream
  readonly #broker: Broker;
  readonly #stage: string;
  readonly #stream: string;
  readonly #consumer: string;
  readonly #reply: string; // where the server waits for the verdict
  /** Undefined where the message itself is all of it, and where its headers are malformed. */
  readonly body: DistantBody | undefined;
  #isSettled = false;

  constructor(broker: Broker, message: JsMsg, stage: string) {
    this.#broker = broker;
    this.#stage = stage;
    this.seq = message.seq;
    this.#stream = message.info.stream;
    this.#consumer = message.info.consumer;
    // The client's messages all have it; its interface keeps it to itself.
    this.#reply = (message as JsMsg & { readonly reply: string }).reply;
    this.body = distantBody(broker, message);
  }

  /** Asks for another whole ack wait. */
  working(): void {
    const { connection } = this.#broker.link;
    if (this.#isSettled || connection.isClosed() || connection.isDraining()) return;
    connection.publish(this.#reply, '+WPI');
  }

  /** Done with it for good; resolves when the server has confirmed. */
  async ack(): Promise<void> {
    if (this.settle()) await this.conclude('+ACK', 'acknowledged');
  }

  /** Whoever settles it says so first. @returns false if that has happened before. */
  settle(): boolean {
    if (this.#isSettled) return false;
    this.#isSettled = true;
    return true;
  }

  count(outcome: 'acknowledged' | 'returned' | 'dead'): void {
    settled.inc({ stage: this.#stage, outcome });
  }

  /** Takes it out of the queue, and its body with it. Resolves when the server has confirmed. */
  async conclude(verdict: '+ACK' | '+TERM', outcome: 'acknowledged' | 'dead'): Promise<void> {
    await this.#confirm(verdict);
    this.count(outcome);
    await this.#dropBody();
  }

  /** Sends until the server confirms, across its restarts: the client's own ackAck tries once. */
  async #confirm(verdict: '+ACK' | '+TERM'): Promise<void> {
    const { connection, log, outages, signal } = this.#broker.link;
    const what = `settle message ${this.seq} of ${this.#stream}`;
    await retry({ what, log, signal, outages }, async (before) => {
      try {
        await connection.request(this.#reply, verdict, { timeout: 5_000 });
      } catch (caught) {
        // Nobody listens for so long only if the consumer is gone, and its deliveries with it.
        const patience = caught instanceof NatsError ? tries.get(caught.code) : undefined;
        if (before < (patience ?? Infinity) || (await this.#consumerIsThere())) throw caught;
        throw new Error(`cannot ${what}: its consumer is gone`, { cause: caught });
      }
    });
  }

  async #consumerIsThere(): Promise<boolean> {
    const { link } = this.#broker;
    const info = await askFor(link, `look at consumer ${this.#consumer}`, () =>
      link.jsm.consumers.info(this.#stream, this.#consumer),
    );
    return info !== undefined;
  }

  async #dropBody(): Promise<void> {
    try {
      await this.body?.delete();
    } catch (caught) {
      const { name: object } = this.body!;
      this.#broker.link.log.warn({ object, reason: errorText(caught) }, 'body left behind'); // to be swept
    }
  }
}

/** What a message says, where that lies elsewhere because it was too large. It does not keep the message. */
export interface DistantBody {
  readonly name: string; // for people
  /** @throws {PermanentError} if it can never be read; undefined if it is not there. */
  read(): Promise<Uint8Array | undefined>;
  delete(): Promise<void>;
}

/** Where the body of a message lies; undefined if that is the message itself. */
export function distantBody(
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
