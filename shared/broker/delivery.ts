import { ErrorCode, type JsMsg, NatsError } from 'nats';
import { Counter } from 'prom-client';
import { errorText, PermanentError } from '../errors.js';
import { traceHeader } from '../telemetry/tracing.js';
import type { Broker } from './broker.js';
import { bodyHeader } from './publish.js';
import { retry } from './retry.js';

const settled = new Counter({
  name: 'broker_messages_settled_total',
  help: 'Messages by what became of them.',
  labelNames: ['stage', 'outcome'],
});

/** A message in the hands of a consumer, to be settled once. */
export interface Delivery<T> {
  readonly value: T;
  readonly subject: string;
  readonly seq: number; // in its stream
  readonly deliveryCount: number; // 1 the first time
  readonly trace?: string | undefined; // `traceparent` of the span that led to it
  /** Asks for another whole ack wait. */
  working(): void;
  /** Done with it for good; resolves when the server has confirmed. */
  ack(): Promise<void>;
  /** Gives it back, to be delivered again after `delayMs` or at once. */
  nak(delayMs?: number): void;
  /** Puts it aside with the reason, and out of the queue. */
  dead(reason: string): Promise<void>;
}

/** The settling of one message: whatever comes after the first ack, nak or dead does nothing. */
export class Settlement {
  readonly #broker: Broker;
  readonly #message: JsMsg;
  readonly #stage: string;
  #isSettled = false;

  constructor(broker: Broker, message: JsMsg, stage: string) {
    this.#broker = broker;
    this.#message = message;
    this.#stage = stage;
  }

  get trace(): string | undefined {
    return this.#message.headers?.get(traceHeader) || undefined;
  }

  working(): void {
    if (!this.#isSettled && !this.#broker.link.connection.isClosed()) this.#message.working();
  }

  async ack(): Promise<void> {
    if (!this.#settle()) return;
    await this.#confirm('+ACK');
    this.#count('acknowledged');
    await this.#dropBody();
  }

  nak(delayMs?: number): void {
    if (!this.#settle()) return;
    this.#message.nak(delayMs);
    this.#count('returned');
  }

  async dead(reason: string): Promise<void> {
    if (!this.#settle()) return;
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
    await this.#confirm('+TERM');
    this.#count('dead');
    await this.#dropBody();
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

  #count(outcome: 'acknowledged' | 'returned' | 'dead'): void {
    settled.inc({ stage: this.#stage, outcome });
  }

  #settle(): boolean {
    if (this.#isSettled) return false;
    this.#isSettled = true;
    return true;
  }

  /** Sends until the server confirms, across its restarts: the client's own ackAck tries once. */
  async #confirm(verdict: '+ACK' | '+TERM'): Promise<void> {
    const { connection, log, outages, signal } = this.#broker.link;
    // The client's messages all have it; its interface keeps it to itself.
    const { reply } = this.#message as JsMsg & { readonly reply: string };
    const what = `settle message ${this.#message.seq} of ${this.#message.info.stream}`;
    await retry({ what, log, signal, outages }, async (before) => {
      try {
        await connection.request(reply, verdict, { timeout: 5_000 });
      } catch (caught) {
        // Nobody listens for so long only if the consumer is gone, and its deliveries with it.
        const isUnheard =
          caught instanceof NatsError && caught.code === (ErrorCode.NoResponders as string);
        if (isUnheard && before >= 8) {
          throw new Error(`cannot ${what}: its consumer is gone`, { cause: caught });
        }
        throw caught;
      }
    });
  }

  async #dropBody(): Promise<void> {
    const object = this.#message.headers?.get(bodyHeader);
    if (!object) return;
    try {
      await this.#broker.bodies.delete(object);
    } catch (caught) {
      this.#broker.link.log.warn({ object, reason: errorText(caught) }, 'body left behind');
    }
  }
}
