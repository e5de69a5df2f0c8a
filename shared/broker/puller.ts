import { setTimeout as sleep } from 'node:timers/promises';
import { type Consumer, type JsMsg, millis } from 'nats';
import { errorText } from '../base/errors.js';
import type { Logger } from '../service/telemetry/logger.js';
import { classify } from './failures.js';
import type { Link } from './link.js';
import type { Source } from './names.js';

/** How long a request for messages waits for some. */
export const requestMs = 10_000;

/** A caller of `messages` that waits for its next one. */
interface Lane {
  readonly resolve: (message: JsMsg | undefined) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * Fetches messages from a durable consumer, one at a time for each caller of `messages`. One request serves all
 * callers that wait, so a busy process makes fewer requests for each message. Only for tickets each caller makes its
 * own request: the learner counts them.
 *
 * Never buffers: the ack wait of a buffered message would expire, and another process would repeat the work.
 */
export class Puller {
  readonly #link: Link;
  readonly #source: Source;
  readonly #log: Logger;
  readonly #signal: AbortSignal;
  readonly #ready: ((signal: AbortSignal, lane: number) => Promise<void>) | undefined;
  readonly #reopenMs: number;
  #consumer: Promise<Consumer> | undefined;
  #openedAt = -Infinity;
  #ackWaitMs = 30_000;
  readonly #lanes: Lane[] = []; // that wait, the first first
  #isFetching = false;
  #warnedAt = -Infinity;

  /** @param ready awaited before each fetch of a lane. */
  constructor(
    link: Link,
    source: Source,
    log: Logger,
    signal: AbortSignal,
    ready?: (signal: AbortSignal, lane: number) => Promise<void>,
    reopenMs = 60_000,
  ) {
    this.#link = link;
    this.#source = source;
    this.#log = log;
    this.#signal = signal;
    this.#ready = ready;
    this.#reopenMs = reopenMs;
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
        const message = this.#isOneByOne ? await this.#fetchOne() : await this.#next();
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

  /** The learner counts the requests for tickets to see how many actors want one. */
  get #isOneByOne(): boolean {
    return this.#source === 'tickets.train' || this.#source === 'tickets.eval';
  }

  async #fetchOne(): Promise<JsMsg | undefined> {
    let first: JsMsg | undefined;
    for await (const message of this.#fetch(() => 1)) {
      // After a reconnect the server may send what two requests have asked for.
      if (first === undefined) first = message;
      else message.nak();
    }
    return first;
  }

  #next(): Promise<JsMsg | undefined> {
    const message = new Promise<JsMsg | undefined>((resolve, reject) => {
      this.#lanes.push({ resolve, reject });
    });
    if (!this.#isFetching) void this.#serveLanes();
    return message;
  }

  /** Serves all callers that wait; those that come meanwhile wait for the next request. */
  async #serveLanes(): Promise<void> {
    this.#isFetching = true;
    try {
      while (this.#lanes.length > 0 && !this.#isStopping()) {
        for await (const message of this.#fetch(() => this.#lanes.length)) {
          // After a reconnect the server may send what two requests have asked for.
          const lane = this.#lanes.shift();
          if (lane === undefined) message.nak();
          else lane.resolve(message);
        }
      }
      for (const { resolve } of this.#lanes.splice(0)) resolve(undefined);
    } catch (caught) {
      for (const { reject } of this.#lanes.splice(0)) reject(caught);
    } finally {
      this.#isFetching = false;
    }
  }

  /** Yields at most so many messages, as they come, and ends after `requestMs`, or when the signal aborts. */
  async *#fetch(count: () => number): AsyncGenerator<JsMsg, void, undefined> {
    const consumer = await this.#open();
    if (this.#isStopping()) return;
    // `bind`: after a reconnect it fetches again without first requesting the consumer's info.
    const request = await consumer.fetch({ max_messages: count(), expires: requestMs, bind: true });
    const stop = () => {
      request.stop();
    };
    this.#signal.addEventListener('abort', stop);
    try {
      yield* request;
    } finally {
      this.#signal.removeEventListener('abort', stop);
      stop();
    }
  }

  #isStopping(): boolean {
    return this.#signal.aborted;
  }

  /** The consumer, whose ack wait is read again after a while: a learner that is started again may have changed it. */
  #open(): Promise<Consumer> {
    if (performance.now() - this.#openedAt > this.#reopenMs) this.#consumer = undefined;
    this.#consumer ??= (async () => {
      this.#openedAt = performance.now();
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
