import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { BatchPlan } from '../../../learner/supervised/batch-plan.js';

/** Examples of these lengths; the first token of each is its index. One of length 0 is left out. */
function examplesOf(lengths: readonly number[]) {
  const at = (index: number) =>
    lengths[index] === 0
      ? { reason: 'left out' }
      : {
          tokens: new Int32Array(lengths[index]!).fill(index),
          isTrained: new Uint8Array(lengths[index]!).fill(1),
        };
  return { size: lengths.length, at };
}

/** The indexes of the examples of each step. */
function stepsOf(plan: BatchPlan, start = 0): number[][] {
  const steps: number[][] = [];
  for (let place = start; plan.endOf(place) > place;) {
    const end = plan.endOf(place);
    steps.push(plan.examplesIn(place, end).map(({ tokens }) => tokens[0]!));
    place = end;
  }
  return steps;
}

const batches = fc.record({
  by: fc.constantFrom('examples' as const, 'tokens' as const),
  size: fc.integer({ min: 1, max: 30 }),
});
const lengths = fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 30 });

describe('the batches of a run on examples', () => {
  it('every example is in one batch of each epoch', () => {
    fc.assert(
      fc.property(lengths, batches, fc.integer({ min: 1, max: 4 }), (sizes, batch, epochs) => {
        const plan = new BatchPlan({ examples: examplesOf(sizes), batch, epochs, seed: 3 });
        const steps = stepsOf(plan);
        const all = steps.flat();
        for (let epoch = 0; epoch < epochs; epoch++) {
          const part = all.slice(epoch * sizes.length, (epoch + 1) * sizes.length);
          assert.deepEqual(
            part.sort((a, b) => a - b),
            sizes.map((_, i) => i),
          );
        }
        assert.equal(all.length, epochs * sizes.length);
        assert.equal(steps.length, plan.stepsFrom(0));
      }),
    );
  });

  it('a run whose examples are all left out has no batch, even without a limit of epochs', () => {
    const batch = { by: 'examples', size: 2 } as const;
    const planOf = (lengths: number[]) =>
      new BatchPlan({ examples: examplesOf(lengths), batch, epochs: Infinity, seed: 0 });
    for (const place of [0, 1, 2, 5]) {
      assert.equal(planOf([0, 0, 0]).endOf(place), place);
      assert(planOf([0, 0, 3]).endOf(place) > place);
    }
  });

  it('each example is made once for the first epoch, though it is asked for its length first', () => {
    for (const by of ['examples', 'tokens'] as const) {
      const { size, at } = examplesOf([3, 1, 4, 1, 5, 0, 2, 6]);
      const made: number[] = [];
      const watched = (index: number) => (made.push(index), at(index));
      const batch = { by, size: by === 'examples' ? 3 : 9 };
      const plan = new BatchPlan({ examples: { size, at: watched }, batch, epochs: 1, seed: 0 });
      assert.equal(stepsOf(plan).flat().length, 7);
      assert.deepEqual(made.toSorted(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
  });

  it('a batch has at most as many tokens as it may, unless a single example has more', () => {
    fc.assert(
      fc.property(lengths, fc.integer({ min: 1, max: 30 }), (sizes, size) => {
        const batch = { by: 'tokens', size } as const;
        const plan = new BatchPlan({ examples: examplesOf(sizes), batch, epochs: 2, seed: 0 });
        const steps = stepsOf(plan);
        for (const [i, step] of steps.entries()) {
          const tokens = step.reduce((sum, index) => sum + sizes[index]!, 0);
          assert(tokens <= size || step.length === 1);
          const next = steps[i + 1]?.[0];
          if (next !== undefined) assert(tokens + sizes[next]! > size); // it is full
        }
      }),
    );
  });

  it('the batches after a place do not depend on what came before it', () => {
    const sizes = [5, 3, 9, 2, 7];
    const batch = { by: 'tokens', size: 12 } as const;
    const made = () => new BatchPlan({ examples: examplesOf(sizes), batch, epochs: 3, seed: 1 });
    const whole = stepsOf(made());
    const place = whole.slice(0, 3).flat().length;
    assert.deepEqual(stepsOf(made(), place), whole.slice(3));
  });

  it('the steps left are those from a place on, also after a short last batch of an earlier limit', () => {
    const sizes = Array.from({ length: 1_000 }, () => 1);
    for (const by of ['examples', 'tokens'] as const) {
      const batch = { by, size: 64 };
      const plan = new BatchPlan({ examples: examplesOf(sizes), batch, epochs: 3, seed: 0 });
      assert.equal(plan.stepsFrom(0), 47);
      assert.equal(plan.stepsFrom(1_000), 32); // one more than the 31 that 47 would leave after 16
      assert.equal(stepsOf(plan, 1_000).length, 32);
      assert.deepEqual([plan.stepsFrom(3_000), plan.stepsFrom(3_100)], [0, 0]);
    }
  });

  it('a problem that is left out changes neither the order of the others nor the size of their batches', () => {
    fc.assert(
      fc.property(lengths, batches, fc.array(fc.nat(29)), (sizes, batch, out) => {
        const lacking = sizes.map((size, i) => (i > 0 && out.includes(i) ? 0 : size));
        const made = (used: readonly number[]) =>
          stepsOf(new BatchPlan({ examples: examplesOf(used), batch, epochs: 3, seed: 2 }));
        const steps = made(lacking);
        const kept = made(sizes)
          .flat()
          .filter((index) => lacking[index] !== 0);
        assert.deepEqual(steps.flat(), kept);
        assert(steps.every((step) => step.length > 0));
        if (batch.by === 'tokens') return;
        const full = steps.slice(0, -1);
        assert(full.every((step) => step.length === batch.size));
      }),
    );
  });

  it('the steps left are estimated from the share of the problems that is left out', () => {
    const examples = examplesOf(Array.from({ length: 100 }, (_, i) => i % 2));
    const batch = { by: 'examples', size: 10 } as const;
    const options = { examples, batch, epochs: 2, seed: 0, leftOutShare: 0.5 };
    const plan = new BatchPlan(options);
    assert.equal(plan.stepsFrom(0), 10);
    assert.equal(stepsOf(plan).length, 10);
  });

  it('the steps left are estimated from a thousand of many examples, of which some are left out', () => {
    const sizes = Array.from({ length: 40_000 }, (_, i) => (i % 10 === 0 ? 0 : 20 + (i % 37)));
    let asked = 0;
    const all = examplesOf(sizes);
    const examples = { ...all, at: (index: number) => (asked++, all.at(index)) };
    const batch = { by: 'tokens', size: 1_000 } as const;
    const plan = new BatchPlan({ examples, batch, epochs: 2, seed: 0 });
    const estimate = plan.stepsFrom(0);
    assert(asked <= 1_024, `${asked}`);
    const exact = stepsOf(plan).length;
    assert(Math.abs(estimate / exact - 1) < 0.03, `${estimate} of ${exact}`);
    assert(Math.abs(plan.stepsFrom(40_000) / exact - 0.5) < 0.02);
  });

  it('a run ends where all other problems are left out', () => {
    const examples = examplesOf([1, 0]);
    const batch = { by: 'examples', size: 1 } as const;
    const plan = new BatchPlan({ examples, batch, epochs: 1, seed: 0 });
    const [only] = stepsOf(plan);
    assert.deepEqual(only, [0]);
    assert.equal(plan.endOf(2), 2);
  });

  it('the order differs between epochs and between seeds', () => {
    const examples = examplesOf(Array.from({ length: 40 }, () => 1));
    const batch = { by: 'examples', size: 40 } as const;
    const [first, second] = stepsOf(new BatchPlan({ examples, batch, epochs: 2, seed: 0 }));
    const [other] = stepsOf(new BatchPlan({ examples, batch, epochs: 2, seed: 1 }));
    assert.notDeepEqual(first, second);
    assert.notDeepEqual(first, other);
  });

  it('without a limit of epochs the batches do not end', () => {
    const batch = { by: 'examples', size: 4 } as const;
    const plan = new BatchPlan({ examples: examplesOf([1, 1]), batch, epochs: Infinity, seed: 0 });
    assert.equal(plan.stepsFrom(7), Infinity);
    assert.equal(plan.endOf(1_000), 1_004);
    assert.equal(plan.epochsAt(1_000), 500);
  });
});
