import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { chooseGroups, nextInOrder } from '../../../shared/rl/window.js';

const here = (order: number, deadline: number) => ({ order, deadline, hasArrived: true });
const away = (order: number, deadline: number) => ({ order, deadline, hasArrived: false });

describe('the window that waits, two groups a step, at version 0', () => {
  const step = { version: 0, taken: 0, groupsPerBatch: 2 };

  it('the window that waits takes the first tickets first, however late they arrived', () => {
    const tickets = [here(0, 2), here(1, 2), here(2, 2)];
    assert.deepEqual(chooseGroups('wait', tickets, step, 2), [0, 1]);
  });

  it('the window that waits overtakes a slow group while there is time', () => {
    const tickets = [away(0, 2), here(1, 2), here(2, 2)];
    assert.deepEqual(chooseGroups('wait', tickets, step, 2), [1, 2]);
  });

  it('the window that waits keeps a place for a group that must be in this step', () => {
    const tickets = [away(0, 0), here(1, 1), here(2, 1)];
    assert.equal(chooseGroups('wait', tickets, step, 2), undefined);
    assert.deepEqual(chooseGroups('wait', tickets, step, 1), [1]); // one place is left beside it
  });

  it('the window that waits looks ahead: three groups due within two steps need one place in this step', () => {
    const tickets = [away(0, 1), away(1, 1), away(2, 1), here(3, 2), here(4, 2)];
    assert.deepEqual(chooseGroups('wait', tickets, step, 1), [3]);
    assert.equal(chooseGroups('wait', tickets, step, 2), undefined);
  });

  it('the window that waits counts the groups that the step has taken', () => {
    const tickets = [away(0, 0), here(1, 1)];
    assert.equal(chooseGroups('wait', tickets, { ...step, taken: 1 }, 1), undefined);
  });

  it('the window that waits takes what has arrived among groups that are all due at once', () => {
    const tickets = [away(0, 0), here(1, 0), away(2, 0), here(3, 0)];
    assert.deepEqual(chooseGroups('wait', tickets, { ...step, groupsPerBatch: 4 }, 2), [1, 3]);
  });

  it('the window that waits keeps no place for a group that is past its deadline', () => {
    assert.deepEqual(chooseGroups('wait', [away(0, -1), here(1, 1), here(2, 1)], step, 2), [1, 2]);
  });

  it('the window that waits takes the due groups when more are due than fit', () => {
    const tickets = [here(0, 2), here(1, 0), here(2, 0), here(3, 0)];
    assert.deepEqual(chooseGroups('wait', tickets, step, 2), [1, 2]);
  });

  it('the window that waits chooses nothing while too few groups have arrived', () => {
    assert.equal(chooseGroups('wait', [here(0, 2), away(1, 2)], step, 2), undefined);
    assert.equal(chooseGroups('wait', [], step, 1), undefined);
  });
});

describe('the groups of synchronous training', () => {
  it('a synchronous step takes the first tickets, however late they arrive', () => {
    const tickets = [here(0, 0), away(2, 0), here(3, 0), here(4, 0)];
    assert.deepEqual(nextInOrder(tickets, 1), [0]);
    assert.equal(nextInOrder(tickets, 2), undefined);
    assert.deepEqual(nextInOrder(tickets.with(1, here(2, 0)), 3), [0, 2, 3]);
  });

  it('a synchronous step waits for tickets that are not issued yet', () => {
    assert.equal(nextInOrder([here(0, 0)], 2), undefined);
  });
});

describe('the window that drops, two groups a step, at version 0', () => {
  const step = { version: 0, taken: 0, groupsPerBatch: 2 };

  it('the window that drops takes the first tickets first', () => {
    const tickets = [here(0, 2), away(1, 2), here(2, 2), here(3, 2)];
    for (const policy of ['drop', 'tokens'] as const) {
      assert.deepEqual(chooseGroups(policy, tickets, step, 2), [0, 2]);
    }
  });

  it('the window that drops does not wait for a group that must be in this step', () => {
    const tickets = [away(0, 0), here(1, 1), here(2, 1)];
    assert.deepEqual(chooseGroups('drop', tickets, step, 2), [1, 2]);
  });

  it('the window that drops chooses nothing while too few groups have arrived', () => {
    assert.equal(chooseGroups('drop', [here(0, 2), away(1, 2)], step, 2), undefined);
  });
});
