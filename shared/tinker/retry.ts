import type { Logger } from '../service/telemetry/logger.js';
import { Unavailable, type Failure } from './errors.js';

/** Whether an answer is a transient failure: the same request may be retried. */
export function isTransient(status: number, headers: Headers, isEmpty: boolean): boolean {
  const asked = headers.get('x-should-retry');
  if (asked === 'true' || asked === 'false') return asked === 'true';
  // A 400 without a body comes from a proxy: Tinker servers always send a body.
  // SkyRL answers 425 about a checkpoint that is still being saved. 501 says that there is no such call.
  return (
    status === 408 ||
    status === 425 ||
    status === 429 ||
    (status >= 500 && status !== 501) ||
    (status === 400 && isEmpty)
  );
}

/**
 * Returns the wait before the next attempt, in ms: the server's request, else 0.5 s doubling to 30 s, less up
 * to a quarter, so that many clients do not retry at the same time.
 *
 * @param attempt 0 after the first failure.
 * @param random in [0, 1).
 */
export function retryDelayMs(
  attempt: number,
  headers: Headers | undefined,
  random: number,
  now: Date = new Date(),
): number {
  const asked = headers && askedDelayMs(headers, now);
  if (asked !== undefined && asked > 0 && asked <= 60_000) return asked;
  return Math.min(500 * 2 ** attempt, 30_000) * (1 - 0.25 * random);
}

function askedDelayMs(headers: Headers, now: Date): number | undefined {
  const ms = headers.get('retry-after-ms');
  if (ms !== null && Number.isFinite(Number(ms))) return Number(ms);
  const after = headers.get('retry-after');
  if (after === null) return undefined;
  if (Number.isFinite(Number(after))) return Number(after) * 1000;
  const date = Date.parse(after);
  return Number.isNaN(date) ? undefined : date - now.getTime();
}

/**
 * Whether a failed fetch certainly never reached the server, so that retrying cannot repeat the work. After a
 * reset or a timeout this is unknown.
 */
export function wasNeverSent(caught: unknown): boolean {
  const code = codeOf(caught);
  return code !== undefined && beforeConnection.has(code);
}

/** Whether a fetch failed because nothing listens at the address: the host is up, the server is not. */
export function wasRefused(caught: unknown): boolean {
  return codeOf(caught) === 'ECONNREFUSED';
}

function codeOf(caught: unknown): string | undefined {
  const cause = caught instanceof Error ? caught.cause : undefined;
  const code = (cause as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' ? code : undefined;
}

const beforeConnection = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** Dependencies of a retry budget: clock, random source and log. */
interface RetryBudgetOptions {
  readonly now: () => number; // milliseconds
  readonly random: () => number; // in [0, 1)
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly billingPauseMs: number;
  readonly log: Logger;
}

/** Limits how long one operation retries, counted from the last useful answer, and waits between attempts. */
export class RetryBudget {
  #attempt = 0;
  #since: number;

  constructor(
    private readonly options: RetryBudgetOptions,
    private readonly limitMs: number,
  ) {
    this.#since = options.now();
  }

  /** Restarts the budget after a useful answer. */
  renew(): void {
    this.#attempt = 0;
    this.#since = this.options.now();
  }

  /**
   * Waits before the next attempt and logs the reason.
   *
   * @throws {Unavailable} if the next wait would exceed the budget.
   */
  async wait(
    failure: Failure,
    headers: Headers | undefined,
    signal: AbortSignal,
    cause?: unknown,
  ): Promise<void> {
    const isBilling = failure.status === 402; // the account is being settled: minutes, not errors
    const attempt = this.#attempt++;
    const delayMs = isBilling ? 5_000 : retryDelayMs(attempt, headers, this.options.random());
    const limitMs = isBilling ? this.options.billingPauseMs : this.limitMs;
    const waitedMs = this.options.now() - this.#since;
    if (waitedMs + delayMs > limitMs) {
      const detail = `${failure.detail} (gave up after ${attempt + 1} attempts in ${Math.round(waitedMs / 1000)} s)`;
      throw new Unavailable({ ...failure, detail }, { cause });
    }
    this.options.log.warn({ ...failure, delayMs, attempt }, 'no usable answer yet, trying again');
    await this.options.sleep(delayMs, signal);
  }
}
