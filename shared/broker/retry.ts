import { setTimeout as sleep } from 'node:timers/promises';
import { ErrorCode, NatsError } from 'nats';
import { Counter } from 'prom-client';
import { errorText } from '../base/errors.js';
import type { Logger } from '../service/telemetry/logger.js';
import { classify, type Failure, isOfServersDisk, isOutOfStorage } from './failures.js';

/**
 * Tracks whether the connection is up and fails pending requests as soon as it breaks: they would never be
 * answered, and waiting for their timeouts would cost seconds. Not a `TaskScope`: a break ends single requests,
 * which `retry` repeats, while the calling task continues.
 */
export class Outages {
  readonly #underWay = new Set<(reason: Error) => void>();
  readonly #hindrances = new Map<object, string>();
  #isDown = false;

  get isDown(): boolean {
    return this.#isDown;
  }

  begin(): void {
    this.#isDown = true;
    for (const fail of this.#underWay) fail(disconnected());
  }

  end(): void {
    this.#isDown = false;
  }

  /** Why some request waits although the connection is up. */
  get hindrance(): string | undefined {
    return this.#hindrances.values().next().value;
  }

  /** Sets why `work` waits. @param reason undefined: it does not wait, or only for ordinary backpressure. */
  hinder(work: object, reason: string | undefined): void {
    if (reason === undefined) this.#hindrances.delete(work);
    else this.#hindrances.set(work, reason);
  }

  /** Runs the work; fails if the connection is down or breaks meanwhile. */
  async guard<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isDown) throw disconnected();
    let fail: (reason: Error) => void = () => undefined;
    const lost = new Promise<never>((_, reject) => {
      fail = reject;
    });
    this.#underWay.add(fail);
    try {
      return await Promise.race([work(), lost]);
    } finally {
      this.#underWay.delete(fail);
    }
  }
}

function disconnected(): NatsError {
  return NatsError.errorForCode(ErrorCode.Disconnect);
}

const blockedSeconds = new Counter({
  name: 'broker_publish_blocked_seconds_total',
  help: 'Time that publishers waited because the stream was full or the server unreachable.',
  labelNames: ['queue', 'reason'],
});

/** Returns an `onWait` that counts how long the publishers of a queue wait. */
export function countBlocked(queue: string): NonNullable<RetryOptions['onWait']> {
  return (reason, waitedMs) => {
    blockedSeconds.inc({ queue, reason }, waitedMs / 1_000);
  };
}

interface RetryOptions {
  /** The operation, for the log: `publish to …`. */
  readonly what: string;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** If given, an attempt fails as soon as the connection breaks, and none is made while it is down. */
  readonly outages?: Outages;
  /** Called after each failed attempt with the time from its beginning to the next one. */
  readonly onWait?: (failure: Failure, waitedMs: number) => void;
}

/**
 * Retries until success: waits with growing, jittered pauses while a stream is full or the server is
 * unreachable, and logs the reason at once and every 10 seconds.
 *
 * @param attempt takes the number of attempts before it.
 * @throws the error of `attempt`, if retrying cannot help; the signal's reason, once it aborts.
 */
export async function retry<T>(
  options: RetryOptions,
  attempt: (before: number) => Promise<T>,
): Promise<T> {
  try {
    return await untilSuccess(options, attempt);
  } finally {
    options.outages?.hinder(options, undefined);
  }
}

/** Returns 50 to 100 % of 40 ms, 80 ms, … up to 1.28 s, so that many waiters do not retry at the same time. */
export function pauseMs(attemptsBefore: number, random: number): number {
  return 40 * 2 ** Math.min(attemptsBefore, 5) * (0.5 + random / 2);
}

const logEveryMs = 10_000;

async function untilSuccess<T>(
  options: RetryOptions,
  attempt: (before: number) => Promise<T>,
): Promise<T> {
  const { what, log, signal, outages, onWait } = options;
  const startedAt = performance.now();
  let loggedAt = -Infinity;
  for (let before = 0; ; before++) {
    const begunAt = performance.now(); // an attempt may wait for an answer that does not come
    try {
      const result = await (outages?.guard(() => attempt(before)) ?? attempt(before));
      if (loggedAt > -Infinity) {
        log.info({ what, waitedMs: Math.round(performance.now() - startedAt) }, 'recovered');
      }
      return result;
    } catch (caught) {
      const failure = classify(caught);
      if (failure !== 'full' && failure !== 'away') throw caught;
      if (signal.aborted) throw signal.reason;
      const isOrdinary = failure === 'full' && !isOutOfStorage(caught);
      const reason = describe(caught, failure);
      outages?.hinder(options, isOrdinary ? undefined : reason);
      if (performance.now() - loggedAt > logEveryMs) {
        loggedAt = performance.now();
        log.warn({ what, failure, reason }, 'waiting to try again');
      }
      try {
        await sleep(pauseMs(before, Math.random()), undefined, { signal });
      } catch {
        throw signal.reason;
      } finally {
        onWait?.(failure, performance.now() - begunAt);
      }
    }
  }
}

function describe(caught: unknown, failure: Failure): string {
  const error = caught instanceof NatsError ? caught : undefined;
  const answer = error?.api_error?.description ?? errorText(caught);
  if (isOfServersDisk(caught)) {
    return `the disk of nats-server is full (${answer}); free space, and restart nats-server if it does not recover`;
  }
  if (isOutOfStorage(caught)) {
    return `NATS has no storage left (${answer}); give it more (max_file_store, the account's limit, or max_bytes of the stream), or let consumers work off the waiting messages`;
  }
  if (answer.includes('per subject')) {
    return `this sender has used up its share of the stream (${answer}); it continues as its messages are consumed`;
  }
  if (failure === 'full') return `the stream is full (${answer})`;
  if (error?.code === (ErrorCode.Timeout as string)) {
    return 'NATS is connected and does not answer (TIMEOUT); if this lasts, check whether its disk is full: free space and restart nats-server';
  }
  return answer === '503'
    ? 'no stream takes the subject: the learner has not created the run, or JetStream is starting'
    : `the server does not answer (${answer})`;
}
