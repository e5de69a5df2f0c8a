import { ErrorCode, type JsMsg, NatsError } from 'nats';
import { Counter } from 'prom-client';
import { errorText } from '../base/errors.js';
import type { Broker } from './broker.js';
import { distantBody, type DistantBody } from './message-body.js';
import { askFor } from './link.js';
import { retry } from './retry.js';

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
