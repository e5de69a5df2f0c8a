import { setTimeout as sleep } from 'node:timers/promises';
import { type Consumer, type JsMsg, millis } from 'nats';
import { errorText } from '../base/errors.js';
import type { Logger } from '../service/telemetry/logger.js';
import { classify } from './failures.js';
import type { Link } from './link.js';
import type { Source } from './names.js';

/**
 * Takes messages from a durable consumer, one at a time for each caller of `messages`.
 *
 * Never more than can be handled at once: the ack wait of a message that merely lies in a buffer runs
 * out, and another process would do the same work again.
 */
export class Puller {
  readonly #link: Link;
  readonly #source: Source;
  readonly #log: Logger;
  readonly #signal: AbortSignal;
  #consumer: Promise<Consumer> | undefined;
  #ackWaitMs = 30_000;
  #complainedAt = -Infinity;

  constructor(link: Link, source: Source, log: Logger, signal: AbortSignal) {
    this.#link = link;
    this.#source = source;
    this.#log = log;
    this.#signal = signal;
  }

  /** Messages as they come, until the signal aborts. */
  async *messages(): AsyncGenerator<JsMsg, void, undefined> {
    while (!this.#signal.aborted) {
      try {
        const message = await this.#next();
        if (message !== undefined) yield message;
      } catch (caught) {
        if (this.#isStopping()) return;
        if (classify(caught) === 'closed') throw caught;
        // Perhaps it was dropped and made anew, or the server lost it and the learner restores it.
        this.#consumer = undefined;
        this.#complain(caught);
        await sleep(250, undefined, { signal: this.#signal }).catch(() => undefined);
      }
    }
  }

  /** Of the consumer, as the server has it; known once a message has come. */
  get ackWaitMs(): number {
    return this.#ackWaitMs;
  }

  async #next(): Promise<JsMsg | undefined> {
    const consumer = await this.#open();
    if (this.#isStopping()) return undefined;
    // `bind`: after a reconnect it asks for messages again without asking for the consumer first.
    const request = await consumer.fetch({ max_messages: 1, expires: 10_000, bind: true });
    const stop = () => {
      request.stop();
    };
    this.#signal.addEventListener('abort', stop);
    try {
      for await (const message of request) return message;
      return undefined;
    } finally {
      this.#signal.removeEventListener('abort', stop);
      stop();
    }
  }

  #isStopping(): boolean {
    return this.#signal.aborted;
  }

  #open(): Promise<Consumer> {
    this.#consumer ??= (async () => {
      const { stream, durable } = this.#link.names.consumer(this.#source);
      const { js, outages } = this.#link;
      const consumer = await outages.guard(() => js.consumers.get(stream, durable));
      const { config } = await consumer.info(true);
      if (config.ack_wait !== undefined) this.#ackWaitMs = millis(config.ack_wait);
      return consumer;
    })();
    return this.#consumer;
  }

  #complain(caught: unknown): void {
    if (performance.now() - this.#complainedAt < 10_000) return;
    this.#complainedAt = performance.now();
    const reason =
      classify(caught) === 'absent' ? 'the learner has not created the run yet' : errorText(caught);
    this.#log.warn({ source: this.#source, reason }, 'waiting to consume');
  }
}
