import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  countedRestarts,
  maxRestarts,
  restartDelayMs,
} from '../../../cli/processes/managed-process.js';

describe('a restart', () => {
  const crash = { code: 1, signal: undefined };

  it('a restart waits twice as long each time, until it is no longer attempted', () => {
    const delays = Array.from({ length: maxRestarts + 1 }, (_, i) => restartDelayMs(crash, i));
    assert.deepEqual(delays, [1_000, 2_000, 4_000, 8_000, 16_000, undefined]);
  });

  it('a restart is not attempted if the user must change something or the process never started', () => {
    assert.equal(restartDelayMs({ code: 2, signal: undefined }, 0), undefined);
    const absent = { code: undefined, signal: undefined, failure: 'ENOENT' };
    assert.equal(restartDelayMs(absent, 0), undefined);
  });

  it('a restart is attempted if a process refuses what it could use before, such as a server that may come back', () => {
    const refused = { code: 2, signal: undefined };
    assert.equal(restartDelayMs(refused, 1, true), 2_000);
    assert.equal(restartDelayMs(refused, maxRestarts, true), undefined);
    assert.equal(restartDelayMs(refused, 1), undefined); // it crashed at first, and then refused its settings
  });

  it('a restart is no longer counted after the process has run for a long time', () => {
    assert.deepEqual([countedRestarts(4, 59_999), countedRestarts(4, 60_000)], [4, 0]);
  });
});
