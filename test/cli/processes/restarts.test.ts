import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { maxRestarts, Restarts } from '../../../cli/processes/restarts.js';

describe('a restart', () => {
  const crash = { code: 1, signal: undefined };
  const refusal = { code: 2, signal: undefined };
  const minute = 60_000;

  it('a restart waits twice as long each time, until it is no longer attempted', () => {
    const restarts = new Restarts();
    const delays = Array.from({ length: maxRestarts + 1 }, () => restarts.delayAfter(crash, 0));
    assert.deepEqual(delays, [1_000, 2_000, 4_000, 8_000, 16_000, undefined]);
    assert.equal(restarts.count, maxRestarts);
  });

  it('a restart is not attempted if the user must change something or the process never started', () => {
    assert.equal(new Restarts().delayAfter(refusal, 0), undefined);
    const absent = { code: undefined, signal: undefined, failure: 'ENOENT' };
    assert.equal(new Restarts().delayAfter(absent, 0), undefined);
    const crashedFirst = new Restarts();
    crashedFirst.delayAfter(crash, 0);
    assert.equal(crashedFirst.delayAfter(refusal, 0), undefined);
  });

  it('a restart is attempted if a process refuses what an earlier one could use, such as a server that may come back', () => {
    const restarts = new Restarts();
    restarts.delayAfter(crash, minute);
    const delays = Array.from({ length: maxRestarts }, () => restarts.delayAfter(refusal, 0));
    assert.deepEqual(delays, [2_000, 4_000, 8_000, 16_000, undefined]);
  });

  it('a restart is no longer counted after the process has run for a long time', () => {
    const restarts = new Restarts();
    for (let i = 0; i < 4; i++) restarts.delayAfter(crash, 0);
    assert.equal(restarts.delayAfter(crash, minute - 1), 16_000);
    assert.equal(restarts.delayAfter(crash, minute), 1_000);
    assert.equal(restarts.count, 1);
  });
});
