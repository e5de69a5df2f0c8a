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
    const [written, never] = [new Int32Array(shared), new Int32Array(new SharedArrayBuffer(4))];
    Atomics.wait(never, 0, 0, ms);
    Atomics.store(written, 0, 1);
  },
});
