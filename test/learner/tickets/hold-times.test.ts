import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HoldTimes } from '../../../learner/tickets/hold-times.js';

function holdTimes(seconds: readonly number[]): HoldTimes {
  const times = new HoldTimes({ leaseSeconds: 30 });
  seconds.forEach((held) => {
    times.record(held, 'actor-0');
  });
  return times;
}

describe('the hold limit of a ticket', () => {
  it('the hold limit is ten minutes while hold times are unknown', () => {
    assert.deepEqual([holdTimes([]).limit, holdTimes([1, 1, 1]).limit], [600, 600]);
    assert.equal(holdTimes([]).unusual, 30);
  });

  it('the hold limit follows the median from before a restart until enough tickets have finished', () => {
    const times = new HoldTimes({ leaseSeconds: 30, usualBefore: 5 });
    assert.deepEqual([times.limit, times.unusual], [100, 25]);
    for (let i = 0; i < 4; i += 1) times.record(8, 'actor-0');
    assert.equal(times.limit, 160);
  });

  it('the hold limit is twenty times the median, and at least two leases', () => {
    assert.equal(holdTimes([1, 1, 1, 1]).limit, 60);
    assert.equal(holdTimes([4, 9, 8, 7, 100]).limit, 160);
    assert.deepEqual([holdTimes([1, 1, 1, 1]).unusual, holdTimes([8, 8, 8, 8]).unusual], [10, 40]);
  });

  it('the hold limit is not moved by a minority of actors, however slow, fast or busy it is', () => {
    for (const other of [10_000, 0]) {
      const times = new HoldTimes({ leaseSeconds: 30 });
      for (let i = 0; i < 100; i += 1) times.record(other, 'actor-0');
      for (const actor of ['actor-1', 'actor-2']) times.record(5, actor);
      assert.equal(times.limit, 100);
    }
  });

  it('the hold limit of two actors is moved by one that lies only by a bounded factor', () => {
    const times = new HoldTimes({ leaseSeconds: 30 });
    for (let i = 0; i < 100; i += 1) times.record(0, 'actor-0');
    times.recordLate(100, 'actor-1');
    assert(times.limit > 300 && times.limit < 400, `${times.limit} s`);
    for (let i = 0; i < 300; i += 1) times.record(times.limit, 'actor-0');
    assert(times.limit < 400 * 100 + 1, `${times.limit} s`);
  });

  it('the hold limit forgets old tickets, so that it follows answers that grow longer', () => {
    const before = Array.from({ length: 1_000 }, () => 5);
    assert.equal(holdTimes([...before, ...Array.from({ length: 200 }, () => 50)]).limit, 1_000);
  });

  it('the hold limit doubles while all tickets are late, and resets when one is in time', () => {
    const times = holdTimes([4, 4, 4, 4]);
    times.exceeded();
    times.exceeded();
    assert.equal(times.limit, 320);
    times.record(4, 'actor-0');
    assert.equal(times.limit, 80);
    for (let i = 0; i < 100; i += 1) times.exceeded();
    assert.equal(times.limit, 86_400);
  });

  it('a hold limit set by the user ignores the measured hold times', () => {
    const times = new HoldTimes({ fixedSeconds: 5, leaseSeconds: 30 });
    times.exceeded();
    for (let i = 0; i < 10; i += 1) times.record(100, 'actor-0');
    assert.deepEqual([times.limit, times.unusual], [5, 5]);
  });
});
