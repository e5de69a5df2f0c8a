import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { SequenceConflict, SequenceGate } from '../../local-backend/sequence-gate.js';

/** A gate whose timers fire when the test calls `timeOut`. */
function gateWithClock(): {
  gate: SequenceGate;
  gaps: (readonly [first: number, last: number])[];
  timeOut: () => void;
} {
  const timers = new Set<() => void>();
  const gaps: (readonly [number, number])[] = [];
  const gate = new SequenceGate({
    gapWaitMs: 30_000,
    onGap: (first, last) => gaps.push([first, last]),
    after: (_ms, run) => {
      timers.add(run);
      return () => timers.delete(run);
    },
  });
  return {
    gate,
    gaps,
    timeOut: () => {
      for (const run of timers) run();
      timers.clear();
    },
  };
}

const conflict = (expected: number, got: number) => (error: unknown) =>
  error instanceof SequenceConflict &&
  error.message.startsWith(`Sequence conflict: expected ${expected}, got ${got}.`);

describe('the sequence gate', () => {
  it('the sequence gate runs operations in the order of their ids, regardless of their order of arrival', async () => {
    const { gate } = gateWithClock();
    const ran: number[] = [];
    const run = (id: number) =>
      gate.run(id, () => {
        ran.push(id);
        return Promise.resolve();
      });
    await Promise.all([run(3), run(1), run(4), run(2)]);
    assert.deepEqual(ran, [1, 2, 3, 4]);
  });

  it('the sequence gate starts an operation only after the previous one has ended', async () => {
    const { gate } = gateWithClock();
    let finishFirst = (): void => undefined;
    let hasSecondStarted = false;
    const first = gate.run(1, () => new Promise<void>((resolve) => (finishFirst = resolve)));
    const second = gate.run(2, () => {
      hasSecondStarted = true;
      return Promise.resolve();
    });
    await new Promise(setImmediate);
    assert(!hasSecondStarted);
    finishFirst();
    await Promise.all([first, second]);
    assert(hasSecondStarted);
  });

  it('the sequence gate lets a failed operation consume its id', async () => {
    const { gate } = gateWithClock();
    await assert.rejects(
      gate.run(1, () => Promise.reject(new Error('no'))),
      /no/,
    );
    assert.equal(await gate.run(2, () => Promise.resolve('ran')), 'ran');
  });

  it('the sequence gate refuses a used id and reports the expected one', async () => {
    const { gate } = gateWithClock();
    await gate.run(1, () => Promise.resolve());
    await assert.rejects(
      gate.run(1, () => Promise.resolve()),
      conflict(2, 1),
    );
  });

  it('the sequence gate answers a probe with id 0 after earlier operations, with the expected id', async () => {
    const { gate } = gateWithClock();
    const order: string[] = [];
    const first = gate.run(1, () => Promise.resolve(order.push('first')));
    const probe = gate
      .run(0, () => Promise.resolve())
      .catch((error: unknown) => {
        order.push('probe');
        throw error;
      });
    await assert.rejects(probe, conflict(2, 0));
    await first;
    assert.deepEqual(order, ['first', 'probe']);
  });

  it('the sequence gate skips missing ids once and continues after them', async () => {
    const { gate, gaps, timeOut } = gateWithClock();
    const ran: number[] = [];
    const run = (id: number) => gate.run(id, () => Promise.resolve(ran.push(id)));
    const early = [run(6), run(3), run(4)];
    timeOut();
    await Promise.all([...early, run(7)]);
    assert.deepEqual(ran, [3, 4, 6, 7]);
    assert.deepEqual(gaps, [
      [1, 2],
      [5, 5],
    ]);
  });

  it('the sequence gate refuses a skipped id that arrives late', async () => {
    const { gate, timeOut } = gateWithClock();
    const second = gate.run(2, () => Promise.resolve());
    timeOut();
    await second;
    await assert.rejects(
      gate.run(1, () => Promise.resolve()),
      conflict(3, 1),
    );
  });

  it('the sequence gate stops the timer of an operation once it is queued', async () => {
    const { gate, timeOut } = gateWithClock();
    const second = gate.run(2, () => Promise.resolve('ran'));
    await gate.run(1, () => Promise.resolve());
    timeOut();
    assert.equal(await second, 'ran');
  });

  it('the sequence gate refuses an id far ahead immediately', async () => {
    const { gate } = gateWithClock();
    await assert.rejects(
      gate.run(1_000_000, () => Promise.resolve()),
      conflict(1, 1_000_000),
    );
  });

  it('the sequence gate runs an operation without an id in order of arrival and consumes no id', async () => {
    const { gate } = gateWithClock();
    const ran: string[] = [];
    const run = (id: number | undefined, name: string) =>
      gate.run(id, () => Promise.resolve(ran.push(name)));
    await Promise.all([run(1, 'a'), run(undefined, 'b'), run(2, 'c')]);
    assert.deepEqual(ran, ['a', 'b', 'c']);
  });
});
