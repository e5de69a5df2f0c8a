import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { aborted, together } from '../../actor/together.js';

const endless = async (signal: AbortSignal): Promise<void> => {
  await aborted(signal);
  signal.throwIfAborted();
};

describe('tasks that run together', () => {
  it('end without an error when they are told to', async () => {
    const stop = new AbortController();
    const running = together(stop.signal, [endless, (signal) => aborted(signal)]);
    stop.abort();
    await running;
  });

  it('all end when one fails, and fail with its error', async () => {
    let hasEnded = false;
    const other = async (signal: AbortSignal): Promise<void> => {
      await aborted(signal);
      hasEnded = true;
      throw new Error('a consequence');
    };
    const failing = () => Promise.reject(new Error('the cause'));
    await assert.rejects(together(new AbortController().signal, [other, failing]), /the cause/);
    assert(hasEnded);
  });

  it('do not hide an error that is raised while they end', async () => {
    const stop = new AbortController();
    const failing = async (signal: AbortSignal): Promise<void> => {
      await aborted(signal);
      throw new Error('could not close');
    };
    const running = together(stop.signal, [endless, failing]);
    stop.abort();
    await assert.rejects(running, /could not close/);
  });
});
