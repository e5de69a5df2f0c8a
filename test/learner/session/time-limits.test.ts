import assert from 'node:assert/strict';
import { describe, it, mock } from 'node:test';
import { graceAfter, TrainingClock } from '../../../learner/session/time-limits.js';

describe('the grace of a stopped learner', () => {
  it('a stopped learner keeps its connections for the patience that it was given, and then says which setting that was', () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      const stop = new AbortController();
      using grace = graceAfter(stop.signal, { stopPatienceSeconds: 40 });
      mock.timers.tick(100_000);
      assert(!grace.signal.aborted); // it has not been stopped
      stop.abort();
      mock.timers.tick(39_999);
      assert(!grace.signal.aborted);
      mock.timers.tick(1);
      assert.match(String(grace.signal.reason), /more than the 40 s of --stop-patience-seconds/);
    } finally {
      mock.timers.reset();
    }
  });
});

describe('the training clock', () => {
  it('the training clock adds up its running times and aborts at the limit', () => {
    let now = 0;
    const clock = new TrainingClock(1, () => now);
    {
      using running = clock.start();
      now = 40;
      assert(!running.signal.aborted);
    }
    now = 1_000; // an evaluation ran meanwhile
    assert.equal(clock.seconds, 40);
    {
      using running = clock.start();
      now = 1_020;
      assert(!running.signal.aborted);
    }
    assert(clock.isOver);
    using again = clock.start();
    assert(again.signal.aborted);
  });
});
