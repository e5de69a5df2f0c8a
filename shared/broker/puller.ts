import { setTimeout as sleep } from 'node:timers/promises';
import { type Consumer, type JsMsg, millis } from 'nats';
import { errorText } from '../base/errors.js';
import type { Logger } from '../service/telemetry/logger.js';
import { classify } from './failures.js';
import type { Link } from './link.js';
import type { Source } from './names.js';

/**
 * Fetches messages from a durable consumer, one at a time for each caller of `messages`.
 *
 * Never buffers: the ack wait of a buffered message would expire, and another process would repeat the work.
 */
export class Puller {
  readonly #link: Link;
  readonly #source: Source;
  readonly #log: Logger;
  readonly #signal: AbortSignal;
  readonly #ready: ((signal: AbortSignal, lane: number) => Promise<void>) | undefined;
  #consumer: Promise<Consumer> | undefined;
  #ackWaitMs = 30_000;
  #warnedAt = -Infinity;

  /** @param ready awaited before each fetch of a lane. */
  constructor(
    link: Link,
    source: Source,
    log: Logger,
    signal: AbortSignal,
    ready?: (signal: AbortSignal, lane: number) => Promise<void>,
  ) {
    this.#link = link;
    this.#source = source;
    this.#log = log;
    this.#signal = signal;
    this.#ready = ready;
  }

  /**
   * Yields messages as they arrive, until the signal aborts.
   *
   * @param lane number of the caller, for `ready`.
   */
  async *messages(lane = 0): AsyncGenerator<JsMsg, void, undefined> {
    while (!this.#signal.aborted) {
      try {
        await this.#ready?.(this.#signal, lane);
        const message = await this.#next();
        if (message !== undefined) yield message;
      } catch (caught) {
        if (this.#isStopping()) return;
        if (classify(caught) === 'closed') throw caught;
        // The consumer may have been recreated, or lost by the server until the learner restores it.
        this.#consumer = undefined;
        this.#warn(caught);
        await sleep(250, undefined, { signal: this.#signal }).catch(() => undefined);
      }
    }
  }

  /** Ack wait of the consumer; the server's value is known once a message has arrived. */
  get ackWaitMs(): number {
    return this.#ackWaitMs;
  }

  async #next(): Promise<JsMsg | undefined> {
    const consumer = await this.#open();
    if (this.#isStopping()) return undefined;
    // `bind`: after a reconnect it fetches again without first requesting the consumer's info.
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

  #warn(caught: unknown): void {
    if (performance.now() - this.#warnedAt < 10_000) return;
    this.#warnedAt = performance.now();
    const reason =
      classify(caught) === 'absent' ? 'the learner has not created the run yet' : errorText(caught);
    this.#log.warn({ source: this.#source, reason }, 'waiting to consume');
  }
}
