import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  type AdaptiveBound,
  firstBound,
  nextBound,
  nextTicketLimit,
  ticketBound,
  ticketRoom,
  ticketsWanted,
  usualTicketsAhead,
} from '../../../shared/rl/capacity.js';
import {
  stalenessOfNewest,
  type Rewind,
  rewindsInReach,
  smallestUsefulVersion,
  staleness,
} from '../../../shared/rl/staleness.js';

describe('staleness', () => {
  it('staleness is counted from the oldest token', () => {
    assert.equal(staleness(7, [5], []), 2);
    assert.equal(staleness(7, [7, 6, 4], []), 3);
    assert.equal(stalenessOfNewest(7, [6, 4], []), 1);
    assert.equal(stalenessOfNewest(9, [6, 4], [{ from: 9, to: 4 }]), 0); // 6 belongs to lost steps
  });

  describe('after version 4 was restored as version 9', () => {
    const rewinds = [{ from: 9, to: 4 }];

    it('staleness after a restore is unchanged for groups from before', () => {
      assert.equal(staleness(9, [4], rewinds), 0);
      assert.equal(staleness(9, [3], rewinds), 1);
      assert.equal(staleness(11, [3], rewinds), 3);
    });

    it('staleness after a restore counts the lost steps backward and the new ones forward', () => {
      assert.equal(staleness(9, [6], rewinds), 2);
      assert.equal(staleness(10, [6], rewinds), 3);
    });

    it('staleness after a restore is that of the farthest token', () => {
      assert.equal(staleness(9, [4, 7], rewinds), 3);
    });

    it('staleness after a restore counts as usual for the versions made since', () => {
      assert.equal(staleness(12, [10], rewinds), 2);
    });

    it('versions stay useful after a restore that their numbers alone would exclude', () => {
      assert.equal(smallestUsefulVersion(9, 2, rewinds), 2);
      assert.equal(smallestUsefulVersion(10, 2, rewinds), 3);
      assert.equal(smallestUsefulVersion(12, 2, rewinds), 10);
    });
  });

  it('staleness is exact after two crashes close together, for groups from before the first as well', () => {
    // 4 became 9, and 9, before another checkpoint, 11; then 12 came back as 15.
    const rewinds = [
      { from: 9, to: 4 },
      { from: 11, to: 4 },
      { from: 15, to: 12 },
    ];
    assert.equal(staleness(16, [3], rewinds), 3); // 3, 4 = 11, 12 = 15, 16
    assert.equal(staleness(16, [6], rewinds), 4); // lost by the first
    assert.equal(staleness(16, [10], rewinds), 3); // lost by the second
    assert.equal(staleness(16, [14], rewinds), 3); // lost by the third
    assert.equal(smallestUsefulVersion(16, 2, rewinds), 4);
    assert.deepEqual(rewindsInReach(16, 1, rewinds), rewinds.slice(2));
  });

  it('staleness bounds the versions that are still useful, and 0 is the lowest', () => {
    assert.equal(smallestUsefulVersion(7, 2, []), 5);
    assert.equal(smallestUsefulVersion(1, 4, []), 0);
  });
});

/** A life of a run: steps that are trained, and how many of them a checkpoint still covers. */
const life = fc
  .record({ steps: fc.nat(6), saved: fc.nat(6) })
  .map(({ steps, saved }) => ({ steps, saved: Math.min(steps, saved) }));

describe('staleness over any number of crashes', () => {
  it('staleness is the number of steps in one of the two histories but not in the other', () => {
    fc.assert(
      fc.property(fc.array(life, { minLength: 1, maxLength: 12 }), fc.nat(4), (lives, bound) => {
        const run = live(lives, bound);
        const now = run.madeOf.length - 1;
        const trueDistance = run.madeOf.map((weights) => difference(run.madeOf[now]!, weights));
        trueDistance.forEach((steps, version) => {
          assert.equal(staleness(now, [version], run.rewinds), steps);
          // What the ledger keeps decides the same.
          const known = staleness(now, [version], run.kept);
          assert.equal(known <= bound, steps <= bound);
          if (steps <= bound) assert.equal(known, steps);
        });
        const useful = trueDistance.findIndex((steps) => steps <= bound);
        assert.equal(smallestUsefulVersion(now, bound, run.rewinds), useful);
        assert.equal(smallestUsefulVersion(now, bound, run.kept), useful);
      }),
    );
  });
});

/** Lives a run through its crashes: of each version the steps in its weights, and its rewinds. */
function live(lives: readonly { steps: number; saved: number }[], bound: number) {
  const madeOf: string[][] = [[]];
  const rewinds: Rewind[] = [];
  let kept: Rewind[] = []; // as the ledger has them
  let restored = 0; // the version that the life began as
  lives.forEach(({ steps, saved }, number) => {
    for (let i = 0; i < steps; i++) madeOf.push([...madeOf.at(-1)!, `${number}.${i}`]);
    const to = restored + saved;
    if (saved > 0) kept = rewindsInReach(to, bound, kept);
    // A life that saved nothing is followed by one that begins where it began itself.
    const checkpoint =
      saved > 0 ? to : (kept.find(({ from }) => from === restored)?.to ?? restored);
    restored = madeOf.length;
    madeOf.push([...madeOf[checkpoint]!]);
    rewinds.push({ from: restored, to: checkpoint });
    kept = [...kept, { from: restored, to: checkpoint }];
  });
  return { madeOf, rewinds, kept };
}

/** Steps that are in the one and not in the other. */
function difference(one: readonly string[], other: readonly string[]): number {
  return new Set([...one, ...other]).size * 2 - one.length - other.length;
}

describe('the capacity law, 2 steps off-policy and 8 groups a batch', () => {
  const start = {
    groupsPerBatch: 8,
    maxStepsOffPolicy: 2,
    version: 5,
    samplingVersion: 5,
    outstanding: 0,
    stepsLeft: Infinity,
  };

  it('the capacity law allows three batches in all', () => {
    assert.equal(ticketBound(2, 8), 24);
    assert.equal(ticketRoom(start), 24);
    assert.equal(ticketRoom({ ...start, outstanding: 23 }), 1);
    assert.equal(ticketRoom({ ...start, outstanding: 24 }), 0);
  });

  it('the capacity law allows one batch less for each version that the actors do not have yet', () => {
    assert.equal(ticketRoom({ ...start, samplingVersion: 4 }), 16);
    assert.equal(ticketRoom({ ...start, samplingVersion: 2 }), 0);
    assert.equal(ticketRoom({ ...start, samplingVersion: 1, outstanding: 3 }), 0);
  });

  it('the capacity law allows no more when the actors are ahead of the confirmation', () => {
    assert.equal(ticketRoom({ ...start, samplingVersion: 6 }), 24);
  });

  it('the capacity law allows no ticket beyond the last step', () => {
    assert.equal(ticketRoom({ ...start, stepsLeft: 1, outstanding: 5 }), 3);
    assert.equal(ticketRoom({ ...start, stepsLeft: 0 }), 0);
  });

  it('the capacity law allows one batch at a time when training is synchronous', () => {
    const synchronous = { ...start, maxStepsOffPolicy: 0 };
    assert.equal(ticketRoom(synchronous), 8);
    assert.equal(ticketRoom({ ...synchronous, samplingVersion: 4 }), 0);
  });
});

describe('the pace of tickets', () => {
  it('actors want a ticket for each group that they could begin, and a few that wait for them', () => {
    assert.equal(ticketsWanted({ undelivered: 0, requests: 5 }, 2), 7);
    assert.equal(ticketsWanted({ undelivered: 1, requests: 0 }, 2), 1);
    assert.equal(ticketsWanted({ undelivered: 2, requests: 0 }, 2), 0);
    assert.equal(ticketsWanted({ undelivered: 9, requests: 3 }, 2), 0);
  });

  it('by default a quarter of a batch waits for actors, and at least one ticket', () => {
    assert.deepEqual([1, 4, 6, 64].map(usualTicketsAhead), [1, 1, 2, 16]);
  });
});

describe('the limit on tickets, 8 groups a batch and at most 24 tickets', () => {
  const sizes = { groupsPerBatch: 8, minibatchSize: 2, most: 24 };
  const limit = { tickets: 20, idleShare: 0 };
  const busy = { seconds: 10, idleSeconds: 0, fewestReady: 4 };
  const next = (of: Partial<typeof limit>, supply: Partial<typeof busy>) =>
    nextTicketLimit({ ...limit, ...of }, { ...busy, ...supply }, sizes);

  it('the limit falls by a quarter of the groups that were never needed', () => {
    assert.equal(next({}, { fewestReady: 12 }).tickets, 18); // 2 for the next minibatch, 2 in reserve
    assert.equal(next({}, { fewestReady: 4 }).tickets, 20);
    assert.equal(next({}, { fewestReady: 0 }).tickets, 20);
  });

  it('the limit rises by the groups that could have been trained while the learner waited', () => {
    assert.equal(next({}, { idleSeconds: 2, fewestReady: 12 }).tickets, 22);
    assert.equal(next({}, { idleSeconds: 10 }).tickets, 24);
    assert.equal(next({}, { idleSeconds: 11 }).tickets, 24); // clocks differ
  });

  it('the limit stays while the learner has waited lately', () => {
    const waited = next({}, { idleSeconds: 10 });
    assert.equal(waited.idleShare, 1 / 64);
    assert.equal(next(waited, { fewestReady: 12 }).tickets, 24);
    assert(next({ idleShare: 0.009 }, { fewestReady: 12 }).tickets < 20);
  });

  it('the limit is never below one batch or above the bound of the law', () => {
    const supply = fc.record({
      seconds: fc.double({ min: 0, max: 1e3, noNaN: true }),
      idleSeconds: fc.double({ min: 0, max: 1e3, noNaN: true }),
      fewestReady: fc.nat(30),
    });
    fc.assert(
      fc.property(fc.array(supply, { maxLength: 40 }), (steps) => {
        let now = { tickets: 24, idleShare: 0 };
        for (const step of steps) {
          now = nextTicketLimit(now, step, sizes);
          assert(now.tickets >= 8 && now.tickets <= 24, String(now.tickets));
        }
        // A learner that always waits has the bound again.
        for (let i = 0; i < 100; i++)
          now = nextTicketLimit(now, { ...busy, idleSeconds: 2 }, sizes);
        assert.equal(now.tickets, 24);
      }),
    );
  });
});

describe('a bound that adapts itself, 16 steps at most', () => {
  const after = (start: AdaptiveBound, ...steps: (readonly [ess: number, staleness: number])[]) =>
    steps.reduce(
      (bound, [essRatio, staleness]) => nextBound(bound, { essRatio, staleness }, 16),
      start,
    );
  const at = (steps: number): AdaptiveBound => ({ steps, goodSteps: 0, settling: 0 });

  it('the bound rises after three good steps in a row whose data is as old as it allows', () => {
    assert.equal(after(firstBound, [0.97, 1], [0.95, 0.6]).steps, 1);
    assert.equal(after(firstBound, [0.97, 1], [0.95, 0.6], [1, 1]).steps, 2);
    assert.equal(after(at(4), [1, 3.4], [1, 3.4], [1, 3.4]).steps, 4); // younger
    assert.equal(after(at(4), [1, 4], [1, 4], [0.93, 4], [1, 4]).steps, 4); // not in a row
    assert.equal(after(at(16), [1, 16], [1, 16], [1, 16]).steps, 16);
    assert.equal(nextBound(at(4), { essRatio: undefined, staleness: undefined }, 16).steps, 4);
  });

  it('a low effective sample size halves the bound, counted from the age of the data', () => {
    assert.deepEqual(after(at(8), [0.89, 7.9]), { steps: 4, goodSteps: 0, settling: 9 });
    assert.equal(after(at(8), [0.5, 2]).steps, 1);
    assert.deepEqual(after(at(1), [0.5, 1]), at(1));
  });

  it('the bound stays until everything is trained on that was issued under a larger one', () => {
    const settling = Array.from({ length: 9 }, () => [0.5, 8] as const);
    const settled = after(at(8), [0.5, 8], ...settling);
    assert.deepEqual(settled, at(4));
    assert.equal(after(settled, [0.5, 4]).steps, 2);
  });

  it('the bound is never below one step or above the limit', () => {
    const step = fc.tuple(
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.integer({ min: 0, max: 20 }),
    );
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 60 }),
        fc.integer({ min: 1, max: 4 }),
        (steps, limit) => {
          let bound = firstBound;
          for (const [essRatio, staleness] of steps) {
            bound = nextBound(bound, { essRatio, staleness }, limit);
            assert(bound.steps >= 1 && bound.steps <= limit);
          }
        },
      ),
    );
  });
});
