import { monitorEventLoopDelay } from 'node:perf_hooks';

/** Measures the lag of this process's event loop between two readings. */
export class EventLoopLag {
  readonly #delays = monitorEventLoopDelay({ resolution: 10 });

  constructor() {
    this.#delays.enable();
  }

  /** Returns the lag since the last call, by its names in `metrics.jsonl`, and resets it. */
  take(): Record<string, number> {
    const { max } = this.#delays;
    const p99 = this.#delays.percentile(99);
    this.#delays.reset();
    return { 'eventloop_lag_seconds/p99': p99 / 1e9, 'eventloop_lag_seconds/max': max / 1e9 };
  }
}
