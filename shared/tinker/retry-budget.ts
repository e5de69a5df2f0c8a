import { Unavailable, type Failure } from './errors.js';
import { retryDelayMs } from './retry.js';
import type { Logger } from '../service/telemetry/logger.js';

/** What a retry budget waits by: the clock, the dice and the log of a client. */
export interface RetryBudgetOptions {
  readonly now: () => number; // milliseconds
  readonly random: () => number; // in [0, 1)
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly billingPauseMs: number;
  readonly log: Logger;
}

/** How long one operation goes on asking: counts from the last sign of life and waits in between. */
export class RetryBudget {
  #attempt = 0;
  #since: number;

  constructor(
    private readonly options: RetryBudgetOptions,
    private readonly limitMs: number,
  ) {
    this.#since = options.now();
  }

  /** The server answered usefully: what failed before no longer counts. */
  renew(): void {
    this.#attempt = 0;
    this.#since = this.options.now();
  }

  /**
   * Waits before the next attempt, and says why in the log.
   *
   * @throws {Unavailable} when nothing useful came for so long that waiting has no point.
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
