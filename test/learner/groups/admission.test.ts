import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import fc from 'fast-check';
import { Admission } from '../../../learner/groups/admission.js';
import { FleetModel, type Fate } from '../support/fleet-model.js';

const limits = fc
  .record({
    minibatchSize: fc.integer({ min: 1, max: 3 }),
    numMinibatches: fc.integer({ min: 1, max: 3 }),
    numSubsteps: fc.integer({ min: 1, max: 2 }),
    maxStepsOffPolicy: fc.integer({ min: 0, max: 4 }),
    sampleLag: fc.constantFrom(0, 0, 1, 2),
    windowPolicy: fc.constantFrom('wait', 'drop', 'tokens'),
    isFrugal: fc.boolean(),
    isBoundAdaptive: fc.constantFrom(true, undefined),
    maxSteps: fc.integer({ min: 1, max: 6 }),
  })
  .map(({ minibatchSize, ...rest }) => ({
    ...rest,
    sampleLag:
      rest.windowPolicy === 'tokens' ? 0 : Math.min(rest.sampleLag, rest.maxStepsOffPolicy),
    isBoundAdaptive: rest.sampleLag === 0 ? rest.isBoundAdaptive : undefined,
    groupsPerBatch: minibatchSize * rest.numMinibatches * rest.numSubsteps,
  }));
const waitingLimits = limits.map((bounds) => ({ ...bounds, windowPolicy: 'wait' as const }));
const aheads = fc.constantFrom(1, 2, Infinity);
const choices = fc.array(fc.nat(), { maxLength: 400, size: 'max' });
const fates = fc
  .array(
    fc.oneof(
      { weight: 4, arbitrary: fc.constant<Fate>('trainable') },
      { weight: 2, arbitrary: fc.constant<Fate>('slow') },
      { weight: 1, arbitrary: fc.constant<Fate>('delayed') },
      { weight: 1, arbitrary: fc.constant<Fate>('uniform') },
      { weight: 1, arbitrary: fc.constant<Fate>('dead') },
    ),
    { minLength: 1, maxLength: 12 },
  )
  .filter((list) => list.some(isTrainable))
  .map(
    (list) =>
      (order: number): Fate =>
        list[order % list.length]!,
  );

describe('admission under any interleaving of actors and backend', () => {
  it('admission keeps the capacity law and the staleness bound, and every run ends', () => {
    let [stale, partlyStale] = [0, 0];
    fc.assert(
      fc.property(limits, fates, choices, aheads, (bounds, fateOf, moves, ahead) => {
        const model = new FleetModel(bounds, fateOf, ahead);
        for (const move of moves) model.move(move);
        model.drain();
        const { table, step } = model.admission;
        assert.equal(step, bounds.maxSteps);
        assert.equal(table.counts.trained, bounds.maxSteps * bounds.groupsPerBatch);
        assert.equal(table.outstanding, 0); // no ticket is out for an unwanted step
        const trained = model.batches.flat();
        assert.equal(new Set(trained).size, trained.length);
        stale += model.stale;
        partlyStale += model.partlyStale;
      }),
      { numRuns: 400 },
    );
    assert(stale > 0); // otherwise the backstop of the bound is not tested
    assert(partlyStale > 0); // otherwise no group had an age beyond it
  });

  it('a restored learner computes the same adaptive bound from the steps that were recorded', () => {
    let risen = 0;
    fc.assert(
      fc.property(limits, fates, choices, (bounds, fateOf, moves) => {
        const adaptive = { ...bounds, isBoundAdaptive: true as const, maxSteps: 30 };
        const model = new FleetModel(adaptive, fateOf);
        for (const move of moves) model.move(move);
        model.drain();
        const { recorded } = model;
        for (const { step, bound } of recorded) {
          const restored = new Admission(adaptive, { step, version: step });
          for (const { metrics } of recorded.slice(0, step)) restored.limiter.adaptBound(metrics);
          assert.equal(restored.limiter.bound, bound);
        }
        const highest = Math.max(...recorded.map((each) => each.bound));
        assert(highest <= bounds.maxStepsOffPolicy);
        if (highest > 1) risen += 1;
      }),
      { numRuns: 50 },
    );
    assert(risen > 0); // otherwise the bound never changed
  });

  it('admission that waits drops no group as stale and trains every trainable ticket', () => {
    fc.assert(
      fc.property(waitingLimits, fates, choices, aheads, (bounds, fateOf, moves, ahead) => {
        const model = new FleetModel(bounds, fateOf, ahead);
        for (const move of moves) model.move(move);
        model.drain();
        assert.equal(model.admission.table.counts.stale, 0);
        const trained = model.batches.flat().sort((a, b) => a - b);
        const issued = Array.from({ length: model.admission.table.nextOrder }, (_, order) => order);
        assert.deepEqual(
          trained,
          issued.filter((order) => isTrainable(fateOf(order))),
        );
      }),
    );
  });

  it('admission that drops gives up a slow group as soon as a version makes it useless', () => {
    const bounds = { groupsPerBatch: 2, numSubsteps: 1, numMinibatches: 1 };
    const model = new FleetModel(
      { ...bounds, maxStepsOffPolicy: 1, windowPolicy: 'drop', maxSteps: 8 },
      (order) => (order === 0 ? 'slow' : 'trainable'),
    );
    model.drain();
    assert.deepEqual([model.abandoned, model.stale], [2, 0]); // the ticket and its second attempt
    assert.deepEqual(model.admission.table.counts, {
      issued: 18,
      trained: 16,
      skippedZeroVariance: 0,
      stale: 2,
      dead: 0,
      outstanding: 0,
    });
    assert(!model.batches.flat().includes(0));
  });

  it('admission that drops refuses a group that is scored one version too late, and trains its second attempt', () => {
    const bounds = { groupsPerBatch: 2, numSubsteps: 1, numMinibatches: 1 };
    const model = new FleetModel(
      { ...bounds, maxStepsOffPolicy: 1, windowPolicy: 'drop', maxSteps: 3 },
      (order) => (order === 0 ? 'delayed' : 'trainable'),
    );
    model.drain();
    assert.deepEqual([model.abandoned, model.stale], [0, 1]);
    assert.deepEqual(model.batches, [
      [1, 2],
      [3, 4],
      [0, 5],
    ]);
  });

  it('admission without off-policy steps makes the batches of a plain synchronous loop', () => {
    fc.assert(
      fc.property(limits, fates, choices, (bounds, fateOf, moves) => {
        const synchronous = { ...bounds, maxStepsOffPolicy: 0, sampleLag: 0 };
        const model = new FleetModel(synchronous, fateOf);
        for (const move of moves) model.move(move);
        model.drain();
        assert.deepEqual(model.batches, plainLoop(synchronous, fateOf));
      }),
    );
  });
});

function isTrainable(fate: Fate): boolean {
  return fate === 'trainable' || fate === 'slow' || fate === 'delayed';
}

/** Plain synchronous training: issue tickets until the batch is full, then step. */
function plainLoop(
  { groupsPerBatch, maxSteps }: { groupsPerBatch: number; maxSteps: number },
  fateOf: (order: number) => Fate,
): number[][] {
  const batches: number[][] = [];
  for (let order = 0, step = 0; step < maxSteps; step++) {
    const batch: number[] = [];
    while (batch.length < groupsPerBatch) {
      if (isTrainable(fateOf(order))) batch.push(order);
      order += 1;
    }
    batches.push(batch);
  }
  return batches;
}

it('an adaptive bound issues tickets for one version first, and for one more after three good steps', () => {
  const bounds = { groupsPerBatch: 2, numSubsteps: 1, numMinibatches: 2, maxSteps: 50 };
  const admission = new Admission<string>(
    { ...bounds, maxStepsOffPolicy: 16, windowPolicy: 'wait', isBoundAdaptive: true },
    { step: 0, version: 0 },
  );
  const issued = () => {
    while (admission.offer() !== undefined) admission.issue();
    return admission.table.outstanding;
  };
  assert.deepEqual([admission.limiter.bound, issued()], [1, 4]);
  const good = { ess_ratio: 0.99, 'staleness/mean': 1 };
  for (let i = 0; i < 3; i++) admission.limiter.adaptBound(good);
  assert.deepEqual([admission.limiter.bound, issued()], [2, 6]);
});

describe('frugal admission of two groups per step, two steps off-policy', () => {
  let admission: Admission<string>;
  beforeEach(() => {
    const bounds = { groupsPerBatch: 2, numSubsteps: 1, numMinibatches: 2, maxSteps: 50 };
    admission = new Admission<string>(
      { ...bounds, maxStepsOffPolicy: 2, windowPolicy: 'wait', isFrugal: true },
      { step: 0, version: 0 },
    );
  });
  const issueAll = () => {
    while (admission.offer() !== undefined) admission.issue();
  };
  const arriveOne = () => {
    const { order } = admission.table.entries().find(({ state }) => state === 'issued')!;
    admission.arrive(order, 'group', [admission.publishedVersion]);
  };
  /** Trains a step of groups that were all there, and waits for a time before it. */
  const step = (idleSeconds: number) => {
    issueAll();
    for (const { order, state } of admission.table.entries()) {
      if (state === 'issued') admission.arrive(order, 'group', [admission.publishedVersion]);
    }
    const minibatches = [admission.cut()!, admission.cut()!];
    for (const { orders } of minibatches) admission.limiter.recordComputed(orders);
    admission.confirmStep();
    admission.recordPublished(admission.confirmedVersion);
    admission.limiter.adaptLimit({ seconds: 4, idleSeconds });
  };

  it('frugal admission issues fewer tickets while groups wait for the learner, and all as soon as it waits', () => {
    const limit = () => admission.limiter.limit;
    step(4); // the start of the actors says nothing
    assert.equal(limit(), 6);
    for (let i = 0; i < 30; i++) step(0);
    assert(limit() < 4);
    issueAll();
    assert.deepEqual([admission.table.outstanding, admission.room], [3, 0]);
    assert.equal(admission.lawfulRoom, 3);
    step(3);
    assert.equal(limit(), 6);
  });

  it('a computed group makes room for a ticket before its step is confirmed', () => {
    for (let i = 0; i < 30; i++) step(0);
    issueAll(); // besides a group that has arrived
    const { orders } = admission.cut()!;
    arriveOne();
    assert.equal(admission.room, 0);
    admission.limiter.recordComputed(orders);
    assert.equal(admission.room, 1);
  });

  it('frugal admission issues all that the law allows to a learner that waits now, because an actor may be gone with its tickets', () => {
    for (let i = 0; i < 30; i++) step(0);
    issueAll();
    const { orders } = admission.cut()!;
    assert.equal(admission.room, 0); // the backend computes
    admission.limiter.recordComputed(orders);
    assert.deepEqual([admission.room, admission.lawfulRoom], [3, 3]);
    arriveOne();
    assert.equal(admission.room, 1);
  });

  it('a group that is put back counts as not computed', () => {
    for (let i = 0; i < 30; i++) step(0);
    issueAll();
    const { orders } = admission.cut()!;
    admission.limiter.recordComputed(orders);
    admission.cutShort(0);
    admission.limiter.recordComputed(orders); // a late answer
    assert.equal(admission.room, 0);
  });
});

describe('admission with one group per step and one step off-policy', () => {
  const bounds = {
    groupsPerBatch: 1,
    numSubsteps: 1,
    numMinibatches: 1,
    maxStepsOffPolicy: 1,
    windowPolicy: 'wait',
    maxSteps: Infinity,
  } as const;

  it('the publish lag is the number of steps that are confirmed and not published', () => {
    const admission = new Admission<string>(bounds, { step: 0, version: 0 });
    issueAll(admission);
    admission.arrive(0, 'first', [0]);
    admission.arrive(1, 'second', [0]);
    admission.cut();
    admission.cut();
    assert.equal(admission.publishLag, 0);
    admission.confirmStep();
    admission.confirmStep();
    assert.equal(admission.publishLag, 2);
    admission.recordPublished(1);
    assert.equal(admission.publishLag, 1);
    admission.recordPublished(2);
    assert.equal(admission.publishLag, 0);
  });

  it('admission has an offer while the capacity law leaves room or a ticket is to be issued again', () => {
    const admission = new Admission<string>(bounds, { step: 0, version: 0 });
    assert(admission.hasOffer);
    issueAll(admission);
    assert.deepEqual([admission.hasOffer, admission.room, admission.samplable], [false, 0, 2]);
    admission.table.retryOrEnd(0);
    assert.deepEqual([admission.hasOffer, admission.room, admission.samplable], [true, 0, 2]);
  });

  it('admission refuses a group that a crash made too old, and reissues its ticket once', () => {
    const counts = {
      issued: 2,
      trained: 0,
      skippedZeroVariance: 0,
      stale: 0,
      dead: 0,
      outstanding: 2,
    };
    const table = { nextOrder: 2, consumedBelow: 0, consumedAbove: [], counts };
    const admission = new Admission<string>(bounds, {
      step: 0,
      version: 9,
      table,
      rewinds: [{ from: 9, to: 3 }],
    });
    admission.arrive(0, 'of a lost step', [6]); // three steps away from version 3
    assert.deepEqual(
      admission.refuse().map(({ order, outcome }) => ({ order, outcome })),
      [{ order: 0, outcome: 'reissue' }],
    );
    assert.equal(admission.room, 0); // the second attempt takes the place of the first

    const offer = admission.offer();
    assert.deepEqual(offer, { order: 0, attempt: 1, issuedAtVersion: 9 });
    assert.equal(admission.issue(), 'of a lost step');
    assert.deepEqual(admission.table.counts, {
      issued: 3,
      trained: 0,
      skippedZeroVariance: 0,
      stale: 1,
      dead: 0,
      outstanding: 2,
    });

    admission.arrive(0, 'of the same lost step', [6]);
    assert.deepEqual(
      admission.refuse().map(({ outcome }) => outcome),
      ['gone'],
    );
    assert.equal(admission.room, 1); // for a new ticket
  });

  it('admission puts back the groups of a step that is cut short', () => {
    const twoGroups = { ...bounds, groupsPerBatch: 2, numMinibatches: 2 };
    const admission = new Admission<string>(twoGroups, { step: 0, version: 0 });
    issueAll(admission);
    admission.arrive(1, 'group', [0]);
    assert.deepEqual(admission.cut()?.orders, [1]);
    admission.cutShort(0);
    assert.equal(admission.table.entry(1)?.state, 'arrived');
    assert.equal(admission.table.counts.trained, 0);
    assert.deepEqual([admission.version, admission.unconfirmedSteps], [0, 0]); // no step was made
  });

  it('admission trains restored tickets in order, because their deadlines are unknown', () => {
    const counts = {
      issued: 4,
      trained: 1,
      skippedZeroVariance: 1,
      stale: 0,
      dead: 0,
      outstanding: 2,
    };
    const table = { nextOrder: 4, consumedBelow: 1, consumedAbove: [2], counts };
    const admission = new Admission<string>(bounds, { step: 1, version: 5, table });
    admission.arrive(3, 'the later one', [5]);
    assert.equal(admission.cut(), undefined); // ticket 1 may be due now
    admission.arrive(1, 'the earlier one', [4]);
    assert.deepEqual(admission.cut()?.orders, [1]);
    assert.deepEqual(admission.cut()?.orders, [3]);
  });
});

describe('admission with a sample lag of two versions', () => {
  const bounds = {
    groupsPerBatch: 3,
    numSubsteps: 1,
    numMinibatches: 1,
    windowPolicy: 'wait',
  } as const;
  const lagging = { ...bounds, maxStepsOffPolicy: 2, sampleLag: 2, maxSteps: 7 };

  it('admission with a sample lag of 2 trains on data exactly two versions old, despite skipped groups', () => {
    const admission = new Admission<string>(lagging, { step: 0, version: 0 });
    const stalenesses: number[][] = [];
    while (!admission.isComplete) {
      for (let offer = admission.offer(); offer !== undefined; offer = admission.offer()) {
        admission.issue();
        const { order, issuedAtVersion } = offer;
        if (order % 5 < 3) admission.table.skip(order);
        else admission.arrive(order, 'group', [issuedAtVersion]);
      }
      const minibatch = admission.cut();
      assert(minibatch !== undefined);
      stalenesses.push([...minibatch.staleness]);
      admission.confirmStep();
      admission.recordPublished(admission.confirmedVersion);
    }
    // The first steps have no policy older than the initial one.
    assert.deepEqual(
      stalenesses,
      [0, 1, 2, 2, 2, 2, 2].map((lag) => [lag, lag, lag]),
    );
    assert.equal(admission.table.counts.stale, 0);
  });
});

describe('admission with two optimizer steps per step of eight groups', () => {
  const bounds = {
    groupsPerBatch: 8,
    numSubsteps: 2,
    numMinibatches: 2,
    maxStepsOffPolicy: 1,
    windowPolicy: 'wait',
    maxSteps: Infinity,
  } as const;
  let admission: Admission<string>;
  beforeEach(() => {
    admission = new Admission<string>(bounds, { step: 0, version: 0 });
    issueAll(admission);
    for (let order = 0; order < 14; order++) admission.arrive(order, 'group', [0]);
  });

  it('two optimizer steps make one version, and staleness counts versions', () => {
    const cuts = Array.from({ length: 5 }, () => admission.cut()!);
    assert.deepEqual(
      cuts.map(({ orders }) => orders),
      [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
        [8, 9],
      ],
    );
    assert.deepEqual(
      cuts.map(({ substep, isLastOfSubstep, isLastOfStep, staleness }) => [
        substep,
        isLastOfSubstep,
        isLastOfStep,
        staleness[0],
      ]),
      [
        [0, false, false, 0],
        [0, true, false, 0],
        [1, false, false, 0],
        [1, true, true, 0],
        [0, false, false, 1],
      ],
    );
    assert.equal(admission.version, 1);
  });

  it('a step cut short after its first optimizer step keeps the groups of that as a shorter step', () => {
    for (let i = 0; i < 3; i++) admission.cut();
    admission.cutShort(1);
    assert.deepEqual([admission.version, admission.unconfirmedSteps], [1, 1]);
    admission.confirmStep();
    const { trained, outstanding } = admission.table.counts;
    assert.deepEqual([admission.step, trained, outstanding], [1, 4, 12]);
    assert.equal(admission.table.entry(4)?.state, 'arrived'); // in the third minibatch, which was put back
  });
});

/** Issues all tickets that the capacity law allows. */
function issueAll(admission: Admission<string>): void {
  while (admission.offer() !== undefined) admission.issue();
}
