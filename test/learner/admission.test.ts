import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { Admission } from '../../learner/admission.js';
import { FleetModel, type Fate } from './support/fleet-model.js';

const limits = fc
  .record({
    minibatchSize: fc.integer({ min: 1, max: 3 }),
    numMinibatches: fc.integer({ min: 1, max: 3 }),
    maxStepsOffPolicy: fc.integer({ min: 0, max: 4 }),
    maxSteps: fc.integer({ min: 1, max: 6 }),
  })
  .map(({ minibatchSize, ...rest }) => ({
    ...rest,
    groupsPerBatch: minibatchSize * rest.numMinibatches,
  }));
const choices = fc.array(fc.nat(), { maxLength: 400, size: 'max' });
const fates = fc
  .array(
    fc.oneof(
      { weight: 4, arbitrary: fc.constant<Fate>('trainable') },
      { weight: 2, arbitrary: fc.constant<Fate>('slow') },
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

describe('admission, whatever actors and the backend do when', () => {
  it('keeps the capacity law and the staleness bound, drops nothing as stale, and ends', () => {
    fc.assert(
      fc.property(limits, fates, choices, (bounds, fateOf, moves) => {
        const model = new FleetModel(bounds, fateOf);
        for (const move of moves) model.move(move);
        model.drain();
        const { book, step } = model.admission;
        assert.equal(model.stale, 0);
        assert.equal(step, bounds.maxSteps);
        assert.equal(book.counts.trained, bounds.maxSteps * bounds.groupsPerBatch);
        assert.equal(book.outstanding, 0); // nobody works for a step that is not wanted
      }),
      { numRuns: 400 },
    );
  });

  it('trains every trainable ticket before the run ends, and each once', () => {
    fc.assert(
      fc.property(limits, fates, choices, (bounds, fateOf, moves) => {
        const model = new FleetModel(bounds, fateOf);
        for (const move of moves) model.move(move);
        model.drain();
        const trained = model.batches.flat().sort((a, b) => a - b);
        const issued = Array.from({ length: model.admission.book.nextOrder }, (_, order) => order);
        assert.deepEqual(
          trained,
          issued.filter((order) => isTrainable(fateOf(order))),
        );
      }),
    );
  });

  it('makes the batches of a plain loop when no step may be off-policy', () => {
    fc.assert(
      fc.property(limits, fates, choices, (bounds, fateOf, moves) => {
        const synchronous = { ...bounds, maxStepsOffPolicy: 0 };
        const model = new FleetModel(synchronous, fateOf);
        for (const move of moves) model.move(move);
        model.drain();
        assert.deepEqual(model.batches, plainLoop(synchronous, fateOf));
      }),
    );
  });
});

function isTrainable(fate: Fate): boolean {
  return fate === 'trainable' || fate === 'slow';
}

/** Synchronous training as one would write it down: ask until the batch is full, then step. */
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

describe('admission, one group a step, one step off-policy', () => {
  const bounds = { groupsPerBatch: 1, numMinibatches: 1, maxStepsOffPolicy: 1, maxSteps: Infinity };

  it('refuses a group that a crash made too old, and issues its ticket once more', () => {
    const counts = {
      issued: 2,
      trained: 0,
      skippedZeroVariance: 0,
      stale: 0,
      dead: 0,
      outstanding: 2,
    };
    const book = { nextOrder: 2, consumedBelow: 0, consumedAbove: [], counts };
    const admission = new Admission<string>(bounds, {
      step: 0,
      version: 9,
      book,
      rewind: { from: 9, to: 3 },
    });
    admission.arrive(0, 'of a lost step', [6]); // three steps from version 3
    assert.deepEqual(
      admission.refuseStale().map(({ order, outcome }) => ({ order, outcome })),
      [{ order: 0, outcome: 'reissue' }],
    );
    assert.equal(admission.room, 0); // the second attempt takes the place of the first

    const offer = admission.offer();
    assert.deepEqual(offer, { order: 0, attempt: 1, issuedAtVersion: 9 });
    assert.equal(admission.issue(), 'of a lost step');
    assert.deepEqual(admission.book.counts, {
      issued: 3,
      trained: 0,
      skippedZeroVariance: 0,
      stale: 1,
      dead: 0,
      outstanding: 2,
    });

    admission.arrive(0, 'of the same lost step', [6]);
    assert.deepEqual(
      admission.refuseStale().map(({ outcome }) => outcome),
      ['gone'],
    );
    assert.equal(admission.room, 1); // a ticket of another problem takes it now
  });

  it('gives the groups of an abandoned step back', () => {
    const two = { ...bounds, groupsPerBatch: 2, numMinibatches: 2 };
    const admission = new Admission<string>(two, { step: 0, version: 0 });
    for (let i = 0; i < 2; i++) {
      admission.offer();
      admission.issue();
    }
    admission.arrive(1, 'group', [0]);
    assert.deepEqual(admission.cut()?.orders, [1]);
    admission.abandonStep();
    assert.equal(admission.book.entry(1)?.state, 'arrived');
    assert.equal(admission.book.counts.trained, 0);
  });

  it('trains restored tickets in their order, as their deadlines are not known', () => {
    const counts = {
      issued: 4,
      trained: 1,
      skippedZeroVariance: 1,
      stale: 0,
      dead: 0,
      outstanding: 2,
    };
    const book = { nextOrder: 4, consumedBelow: 1, consumedAbove: [2], counts };
    const admission = new Admission<string>(bounds, { step: 1, version: 5, book });
    admission.arrive(3, 'the later one', [5]);
    assert.equal(admission.cut(), undefined); // ticket 1 may be due now
    admission.arrive(1, 'the earlier one', [4]);
    assert.deepEqual(admission.cut()?.orders, [1]);
    assert.deepEqual(admission.cut()?.orders, [3]);
  });
});
