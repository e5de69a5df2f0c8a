import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { WorkerCalls } from '../../../shared/service/worker-calls.js';
import { PermanentError, UserError } from '../../../shared/base/errors.js';
import { until } from '../../support/waiting.js';
import type { TestCalls } from './calls-worker.js';
import type { Blocked, DrainingCalls } from './draining-worker.js';

const start = () => new WorkerCalls<TestCalls>(new URL('./calls-worker.js', import.meta.url));

describe('calls to a worker thread', () => {
  it('calls run one after another and return their results', async () => {
    await using worker = start();
    const [doubled, count] = await Promise.all([
      worker.call('double', { values: Float32Array.of(1, 2) }),
      worker.call('count', undefined),
    ]);
    assert.deepEqual(doubled, { values: Float32Array.of(2, 4) });
    assert.equal(count, 1);
    assert.equal(worker.depth, 0);
  });

  it('calls transfer the memory of whole arrays and copy views', async () => {
    await using worker = start();
    const whole = Float32Array.of(1, 2, 3);
    const view = Float32Array.of(1, 2, 3).subarray(1);
    await worker.call('double', { values: whole });
    assert.equal(whole.length, 0);
    const { values } = await worker.call('double', { values: view });
    assert.deepEqual([...values], [4, 6]);
    assert.equal(view.length, 2);
  });

  it('calls fail with an error of the same class', async () => {
    await using worker = start();
    await assert.rejects(worker.call('fail', { kind: 'user' }), (error) => {
      return error instanceof UserError && error.message === 'the user';
    });
    await assert.rejects(worker.call('fail', { kind: 'permanent' }), (error) => {
      return error instanceof PermanentError && error.message === 'the input';
    });
    await assert.rejects(worker.call('fail', { kind: 'other' }), /the code/);
    assert.equal(await worker.call('count', undefined), 0, 'the worker continues');
  });

  it('calls fail when the thread dies, and so does its `died`', async () => {
    await using worker = start();
    const calls = [worker.call('die', undefined), worker.call('count', undefined)];
    for (const call of calls) await assert.rejects(call, /ended unexpectedly, with code 7/);
    await assert.rejects(worker.died, /calls-worker\.js ended unexpectedly, with code 7/);
    await assert.rejects(worker.call('count', undefined), /ended unexpectedly, with code 7/);
  });

  it('the thread ends only after a call that blocks it, though its caller waits no longer', async () => {
    const written = new SharedArrayBuffer(4);
    const stop = new AbortController();
    {
      await using worker = start();
      const blocked = worker.call('block', { shared: written, ms: 300 }, stop.signal);
      stop.abort(new Error('enough'));
      await assert.rejects(blocked, /enough/);
    }
    assert.equal(new Int32Array(written)[0], 1);
  });

  it('the thread ends within a call, but not within a part of it that blocks', async () => {
    const isWithin = new SharedArrayBuffer(4);
    let ended: Promise<void>;
    {
      await using worker = start();
      const endless = worker.call('blockForever', { shared: isWithin, ms: 200 });
      ended = assert.rejects(endless, /calls-worker\.js was ended/);
      await until(() => new Int32Array(isWithin)[0] === 1);
    }
    assert.equal(new Int32Array(isWithin)[0], 0);
    await ended;
  });
});

describe('calls to a worker thread that runs them as they arrive', () => {
  const startDraining = (options: { onEvent?: (event: Blocked) => void }) =>
    new WorkerCalls<DrainingCalls, Blocked>(new URL('./draining-worker.js', import.meta.url), {
      name: 'the draining worker',
      ...options,
    });

  it('calls are received while one blocks the thread', async () => {
    await using worker = startDraining({
      onEvent: ({ at }) => {
        assert.equal(at, 0);
        worker.post('add', 1);
        worker.post('add', 2);
      },
    });
    assert.equal(await worker.call('blockUntil', 3), 3);
  });

  it('calls do not wait for one that never ends', async () => {
    await using worker = startDraining({});
    const stop = new AbortController();
    const endless = worker.call('never', undefined, stop.signal);
    await worker.call('add', 1);
    assert.equal(worker.depth, 1);
    stop.abort(new Error('enough'));
    await assert.rejects(endless, /enough/);
    assert.equal(worker.depth, 0);
    await assert.rejects(worker.call('add', 1, stop.signal), /enough/);
  });

  it('calls fail once the main thread gives up the worker', async () => {
    await using worker = startDraining({});
    const endless = assert.rejects(worker.call('never', undefined), /it hangs/);
    worker.giveUp(new Error('it hangs'));
    worker.giveUp(new Error('it hangs again'));
    await endless;
    await assert.rejects(worker.call('add', 1), /it hangs$/);
    await assert.rejects(worker.died, /it hangs$/);
  });

  it('calls end the thread if they fail and no caller waits for their response', async () => {
    await using worker = startDraining({});
    worker.post('fail', undefined);
    await assert.rejects(worker.died, /the draining worker died: nothing waits for this/);
  });
});
