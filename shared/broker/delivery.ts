import type { JsMsg } from 'nats';
import { PermanentError } from '../base/errors.js';
import { traceHeader } from '../service/telemetry/tracing.js';
import type { DeathCause } from '../wire/death-cause.js';
import type { Broker } from './broker.js';
import { MessageHeaders } from './message-headers.js';
import { MessageLease } from './message-lease.js';
import { digestOf } from './publish.js';

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
