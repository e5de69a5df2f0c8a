import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type StopSignals, untilStopped } from '../../../cli/processes/stop-signals.js';

describe('a command that a signal stops', () => {
  const failing = () => Promise.reject(new Error('the wait was aborted'));
  const stopped = (code: number | undefined) => ({ exitCode: () => code }) as StopSignals;

  it('a command that a signal breaks off ends with the code of the signal, without an error', async () => {
    assert.equal(await untilStopped(stopped(130), failing), 130);
  });

  it('a command that fails by itself, or ends, is left alone', async () => {
    await assert.rejects(untilStopped(stopped(undefined), failing), /the wait was aborted/);
    assert.equal(await untilStopped(stopped(130), () => Promise.resolve(0)), 0);
  });
});
