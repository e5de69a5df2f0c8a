import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { WorkerCalls } from '../../local-backend/worker-calls.js';
import { PermanentError, UserError } from '../../shared/base/errors.js';
import type { TestCalls } from './calls-worker.js';

const start = () => new WorkerCalls<TestCalls>(new URL('./calls-worker.js', import.meta.url));

describe('calls to a worker thread', () => {
  it('run one after another and bring their results', async () => {
    await using worker = start();
    const [doubled, count] = await Promise.all([
      worker.call('double', { values: Float32Array.of(1, 2) }),
      worker.call('count', undefined),
    ]);
    assert.deepEqual(doubled, { values: Float32Array.of(2, 4) });
    assert.equal(count, 1);
    assert.equal(worker.depth, 0);
  });

  it('hand over the memory of whole arrays and copy views', async () => {
    await using worker = start();
    const whole = Float32Array.of(1, 2, 3);
    const view = Float32Array.of(1, 2, 3).subarray(1);
    await worker.call('double', { values: whole });
    assert.equal(whole.length, 0);
    const { values } = await worker.call('double', { values: view });
    assert.deepEqual([...values], [4, 6]);
    assert.equal(view.length, 2);
  });

  it('fail with an error of the same class', async () => {
    await using worker = start();
    await assert.rejects(worker.call('fail', { kind: 'user' }), (error) => {
      return error instanceof UserError && error.message === 'the user';
    });
    await assert.rejects(worker.call('fail', { kind: 'permanent' }), (error) => {
      return error instanceof PermanentError && error.message === 'the input';
    });
    await assert.rejects(worker.call('fail', { kind: 'other' }), /the code/);
    assert.equal(await worker.call('count', undefined), 0, 'the worker goes on');
  });

  it('all fail when the thread dies, which is told', async () => {
    await using worker = start();
    const calls = [worker.call('die', undefined), worker.call('count', undefined)];
    for (const call of calls) await assert.rejects(call, /ended with code 7/);
    await assert.rejects(worker.died, /calls-worker\.js ended with code 7/);
    await assert.rejects(worker.call('count', undefined), /ended with code 7/);
  });
});
