import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Backoff } from '../../../learner/publish/backoff.js';

describe('Backoff', () => {
  it('the pause before a retry doubles up to ten minutes and ends on success', () => {
    let now = 0;
    const backoff = new Backoff<string>(() => now);
    const pauses: number[] = [];
    for (let failure = 0; failure < 9; failure++) {
      backoff.failed('a');
      const failedAt = now;
      while (backoff.waiting().length > 0) now += 1_000;
      pauses.push((now - failedAt) / 1_000);
    }
    assert.deepEqual(pauses, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
    backoff.failed('b');
    assert.deepEqual(backoff.waiting(), ['b']);
    backoff.done('b');
    assert.deepEqual(backoff.waiting(), []);
  });
});
