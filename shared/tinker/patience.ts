import { Unavailable, type Failure } from './errors.js';
import { retryDelayMs } from './retry.js';
import type { TinkerHttp } from './http.js';

/** How long one operation goes on asking: counts from the last sign of life and waits in between. */
export class Patience {
  #attempt = 0;
  #since: number;

  constructor(
    private readonly http: TinkerHttp,
    private readonly limitMs: number,
  ) {
    this.#since = http.now();
  }

  /** The server answered usefully: what failed before no longer counts. */
  renew(): void {
    this.#attempt = 0;
    this.#since = this.http.now();
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
    const delayMs = isBilling ? 5_000 : retryDelayMs(attempt, headers, this.http.random());
    const limitMs = isBilling ? this.http.billingPauseMs : this.limitMs;
    const waitedMs = this.http.now() - this.#since;
    if (waitedMs + delayMs > limitMs) {
      const detail = `${failure.detail} (gave up after ${attempt + 1} attempts in ${Math.round(waitedMs / 1000)} s)`;
      throw new Unavailable({ ...failure, detail }, { cause });
    }
    this.http.log.warn({ ...failure, delayMs, attempt }, 'no usable answer yet, trying again');
    await this.http.sleep(delayMs, signal);
  }
}
