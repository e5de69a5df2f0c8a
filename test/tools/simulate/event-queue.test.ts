import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { EventQueue } from '../../../tools/simulate/event-queue.js';

describe('simulated time', () => {
  it('events happen in the order of their times, and of their planning within one moment', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: 40 }), (times) => {
        const time = new EventQueue();
        const happened: (readonly [number, number])[] = [];
        times.forEach((at, i) => {
          time.plan(at, () => {
            assert.equal(time.now, at);
            happened.push([at, i]);
          });
        });
        while (time.step());
        const sorted = times.map((at, i) => [at, i] as const).sort(([a], [b]) => a - b);
        assert.deepEqual(happened, sorted);
      }),
    );
  });

  it('an event may plan others, but not in the past', () => {
    const time = new EventQueue();
    const happened: string[] = [];
    time.plan(2, () => {
      time.plan(2, () => happened.push('now'));
      assert.throws(() => {
        time.plan(1, () => undefined);
      }, /cannot plan for 1 s: it is 2 s/);
    });
    time.plan(3, () => happened.push('later'));
    while (time.step());
    assert.deepEqual(happened, ['now', 'later']);
    assert.equal(time.step(), false);
  });
});
