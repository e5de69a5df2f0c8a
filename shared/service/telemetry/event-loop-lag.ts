import { monitorEventLoopDelay } from 'node:perf_hooks';

/** How late this process's event loop was, between two readings. */
export class EventLoopLag {
  readonly #delays = monitorEventLoopDelay({ resolution: 10 });

  constructor() {
    this.#delays.enable();
  }

  /** The lag since the last call, by the names of `metrics.jsonl`; then it starts afresh. */
  take(): Record<string, number> {
    const { max } = this.#delays;
    const p99 = this.#delays.percentile(99);
    this.#delays.reset();
    return { 'eventloop_lag_seconds/p99': p99 / 1e9, 'eventloop_lag_seconds/max': max / 1e9 };
  }
}
