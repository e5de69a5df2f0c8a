import { parentPort } from 'node:worker_threads';
import { serveCalls } from '../../../shared/service/worker-calls.js';
import { PermanentError, UserError } from '../../../shared/base/errors.js';

/** A worker to test calls with. */
export interface TestCalls {
  double(input: { values: Float32Array }): Promise<{ values: Float32Array }>;
  count(): number;
  fail(input: { kind: 'user' | 'permanent' | 'other' }): never;
  die(): void;
  /** Blocks the thread as native code does, then writes 1. */
  block(input: { shared: SharedArrayBuffer; ms: number }): void;
  /** Blocks it again and again, without an end; `shared` is 1 within a block and 0 between two. */
  blockForever(input: { shared: SharedArrayBuffer; ms: number }): Promise<never>;
}

let counted = 0;
serveCalls<TestCalls>(parentPort!, {
  async double({ values }) {
    await new Promise(setImmediate); // a call behind this one must still wait for it
    counted++;
    return { values: values.map((value) => 2 * value) };
  },
  count: () => counted,
  fail({ kind }) {
    if (kind === 'user') throw new UserError('the user');
    if (kind === 'permanent') throw new PermanentError('the input');
    throw new RangeError('the code');
  },
  die() {
    process.exit(7);
  },
  block({ shared, ms }) {
    wait(ms);
    Atomics.store(new Int32Array(shared), 0, 1);
  },
  async blockForever({ shared, ms }) {
    const isWithin = new Int32Array(shared);
    for (;;) {
      Atomics.store(isWithin, 0, 1);
      wait(ms);
      Atomics.store(isWithin, 0, 0);
      await new Promise(setImmediate);
    }
  },
});

function wait(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
