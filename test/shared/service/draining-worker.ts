import { parentPort } from 'node:worker_threads';
import { serveCalls } from '../../../shared/service/worker-calls.js';

/** A worker whose calls run as they arrive, to test events, draining and calls without a response. */
export interface DrainingCalls {
  /** Blocks the thread until `add` was called so often; reports first that it does. */
  blockUntil(count: number): number;
  add(amount: number): void;
  never(): Promise<void>;
  fail(): never;
}
export interface Blocked {
  readonly at: number;
}

let added = 0;
const thread = serveCalls<DrainingCalls, Blocked>(
  parentPort!,
  {
    blockUntil(count) {
      thread.emit({ at: added });
      while (added < count) thread.drain();
      return added;
    },
    add(amount) {
      added += amount;
    },
    never: () => new Promise(() => undefined),
    fail() {
      throw new Error('nothing waits for this');
    },
  },
  { isConcurrent: true },
);
