import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { describe, it } from 'node:test';
import { aborted, isAbort, markHandled, TaskScope } from '../../../shared/base/task-scope.js';

const endless = async (signal: AbortSignal): Promise<void> => {
  await aborted(signal);
  signal.throwIfAborted();
};
const failing = (): Promise<never> => Promise.reject(new Error('the cause'));

describe('tasks that run in one scope', () => {
  it('tasks in one scope end without an error when the signal aborts', async () => {
    const stop = new AbortController();
    const running = TaskScope.run(stop.signal, [endless, (signal) => aborted(signal)]);
    stop.abort();
    await running;
  });

  it('tasks in one scope all end when one fails, and fail with its error', async () => {
    let hasEnded = false;
    const other = async (signal: AbortSignal): Promise<void> => {
      await aborted(signal);
      hasEnded = true;
      throw new Error('a consequence');
    };
    await assert.rejects(
      TaskScope.run(new AbortController().signal, [other, failing]),
      /the cause/,
    );
    assert(hasEnded);
  });

  it('tasks in one scope do not hide an error that is raised while they end', async () => {
    const stop = new AbortController();
    const running = TaskScope.run(stop.signal, [
      endless,
      async (signal) => {
        await aborted(signal);
        throw new Error('could not close');
      },
    ]);
    stop.abort();
    await assert.rejects(running, /could not close/);
  });

  it('tasks in one scope fail with an AbortError that is not of their signal', async () => {
    const timedOut = () => Promise.reject(new DOMException('of another signal', 'AbortError'));
    const running = TaskScope.run(new AbortController().signal, [timedOut, endless]);
    await assert.rejects(running, /of another signal/);
  });
});

describe('a task scope', () => {
  it('a task scope turns an error that a task throws before its first await into a failure', async () => {
    await using scope = new TaskScope();
    scope.start(() => {
      throw new Error('at once');
    });
    await scope.settled();
    assert.match(String(scope.signal.reason), /at once/);
  });

  it('a task scope that is disposed of aborts its tasks and waits for them and for those that they start', async () => {
    const ended: string[] = [];
    {
      await using scope = new TaskScope();
      scope.start(async (signal) => {
        await aborted(signal);
        scope.start(async () => {
          await setImmediate();
          ended.push('second');
        });
        ended.push('first');
      });
    }
    assert.deepEqual(ended, ['first', 'second']);
  });

  it('a task scope lets the error of a watched promise be awaited late, as if it was marked as handled', async () => {
    await using scope = new TaskScope();
    const late = [scope.track(failing()), markHandled(failing())];
    await setImmediate(); // an unhandled rejection would fail the test here
    for (const work of late) await assert.rejects(work, /the cause/);
  });

  it('a task scope aborts with any of its signals, also with one that has already aborted', () => {
    const late = new AbortController();
    const scope = new TaskScope(new AbortController().signal, undefined, late.signal);
    late.abort('late');
    assert.equal(scope.signal.reason, 'late');
    assert.equal(new TaskScope(AbortSignal.abort('early')).signal.reason, 'early');
  });

  it('a task scope leaves no listener on a signal that outlives it', async () => {
    const { signal } = new AbortController();
    for (let i = 0; i < 3; i++) await new TaskScope(signal)[Symbol.asyncDispose]();
    await TaskScope.run(signal, [() => Promise.resolve()]);
    assert.equal(getEventListeners(signal, 'abort').length, 0);
  });
});

describe('a child of a task scope', () => {
  it('a child scope fails its parent with its first error, even while it ends', async () => {
    await using parent = new TaskScope();
    {
      await using child = parent.child();
      child.start(async (signal) => {
        await aborted(signal);
        throw new Error('could not close');
      });
    }
    assert.match(String(parent.signal.reason), /could not close/);
  });

  it('a child scope ends by its own signal or with its parent, and fails neither', async () => {
    const stop = new AbortController();
    await using parent = new TaskScope();
    await using early = parent.child(stop.signal);
    await using late = parent.child();
    for (const child of [early, late]) child.start(endless);
    stop.abort();
    await early.settled();
    assert(!parent.signal.aborted);
    parent.abort('over');
    await late.settled();
  });
});

describe('isAbort', () => {
  it('an error is an abort only if its signal has aborted', () => {
    const stop = new AbortController();
    const nodes = new DOMException('This operation was aborted', 'AbortError');
    const reason = new Error('the reason');
    assert(!isAbort(nodes, stop.signal));
    stop.abort(reason);
    assert(isAbort(nodes, stop.signal));
    assert(isAbort(reason, stop.signal));
    assert(!isAbort(new Error('another'), stop.signal));
  });
});
