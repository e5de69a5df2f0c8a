import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { EventQueue } from '../../../tools/simulate/event-queue.js';
import { type SampledGroup, SlotPool } from '../../../tools/simulate/slot-pool.js';

describe('a sampler with one slot', () => {
  let time: EventQueue;
  let pool: SlotPool;
  let version: number;
  let sampled: { readonly at: number; readonly group: SampledGroup }[];
  beforeEach(() => {
    time = new EventQueue();
    version = 0;
    sampled = [];
    pool = new SlotPool({
      slots: 1,
      answersNeeded: 2,
      time,
      newestVersion: () => version,
      onSampled: (group) => sampled.push({ at: time.now, group }),
    });
    pool.start({ order: 0, attempt: 0, seconds: [5, 5] });
    pool.start({ order: 1, attempt: 0, seconds: [1, 1] });
  });
  const until = (at: number, happen: () => void) => {
    time.plan(at, happen);
    while (time.step());
  };

  it('a group has the version of its first token, whatever samples its other answers', () => {
    until(2, () => (version = 1));
    assert.deepEqual(
      sampled.map(({ at, group }) => [at, group.order, group.version]),
      [
        [10, 0, 0],
        [12, 1, 1],
      ],
    );
  });

  it('a cancelled group frees its slot, and its waiting answers never begin', () => {
    until(2, () => {
      const cancelled = pool.cancelBelow(1);
      assert.deepEqual(cancelled[0]!.answers, [
        { seconds: 5, startedAt: 0, endedAt: 2, isWhole: false },
      ]);
      assert.equal(cancelled.length, 1); // the other has no token, so it cannot be too old
      assert.equal(pool.groupsInFlight, 1);
    });
    assert.deepEqual(
      sampled.map(({ at, group }) => [at, group.order]),
      [[4, 1]],
    );
  });
});
