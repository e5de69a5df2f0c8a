import type { JsMsg } from 'nats';
import { PermanentError } from '../errors.js';
import { traceHeader } from '../telemetry/tracing.js';
import type { Broker } from './broker.js';
import { MessageLease } from './message-lease.js';
import { bodyHeader } from './publish.js';

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
  readonly #stage: string;

  constructor(broker: Broker, message: JsMsg, stage: string) {
    this.lease = new MessageLease(broker, message, stage);
    this.#broker = broker;
    this.#message = message;
    this.#stage = stage;
  }

  get trace(): string | undefined {
    return this.#message.headers?.get(traceHeader) || undefined;
  }

  nak(delayMs?: number): void {
    if (!this.lease.settle()) return;
    this.#message.nak(delayMs);
    this.lease.count('returned');
  }

  async dead(reason: string): Promise<void> {
    if (!this.lease.settle()) return;
    const { subject, headers, seq, info } = this.#message;
    const msgId = headers?.get('Nats-Msg-Id');
    let data: Uint8Array;
    try {
      data = await this.body();
    } catch {
      data = this.#message.data; // its body is gone, which is why it dies
    }
    const { trace } = this;
    const original = { subject, data, ...(msgId ? { msgId } : {}), ...(trace && { trace }) };
    await this.#broker.deadLetters.store(this.#stage, reason, original, `${info.stream}-${seq}`);
    // Bare: nats-server 2.9 does not understand a reason and would deliver it again.
    await this.lease.conclude('+TERM', 'dead');
  }

  /** @throws {PermanentError} if the message refers to a body that is not there. */
  async body(): Promise<Uint8Array> {
    const object = this.#message.headers?.get(bodyHeader);
    if (!object) return this.#message.data;
    const bytes = await this.#broker.bodies.get(object);
    if (bytes === undefined) {
      throw new PermanentError(`${this.#message.subject}: its body ${object} is gone`);
    }
    return bytes;
  }
}
