import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { TicketTable } from '../../../learner/tickets/ticket-table.js';

function tableOf(tickets: number): TicketTable<string> {
  const table = new TicketTable<string>();
  for (let i = 0; i < tickets; i++) table.issue(0, 2);
  return table;
}

describe('the ticket table', () => {
  it('the ticket table accounts for every outcome of a ticket', () => {
    const table = tableOf(5);
    for (const order of [0, 1, 4]) table.arrive(order, `group ${order}`, 2);
    assert.deepEqual(table.take([0, 1]), ['group 0', 'group 1']);
    table.train([0, 1]);
    table.skip(2);
    table.markDead(3);
    assert.deepEqual(table.counts, {
      issued: 5,
      trained: 2,
      skippedZeroVariance: 1,
      stale: 0,
      dead: 1,
      outstanding: 1,
    });
    assert.deepEqual(table.state, {
      nextOrder: 5,
      consumedBelow: 4,
      consumedAbove: [],
      counts: table.counts,
    });
  });

  it('the ticket table remembers tickets consumed above the first unconsumed one', () => {
    const table = tableOf(4);
    table.skip(1);
    table.skip(3);
    assert.deepEqual([table.state.consumedBelow, table.state.consumedAbove], [0, [1, 3]]);
    assert(table.isConsumed(3) && !table.isConsumed(2));
    table.skip(0);
    assert.deepEqual([table.state.consumedBelow, table.state.consumedAbove], [2, [3]]);
  });

  it('the ticket table counts a reissue as one stale and one more issued', () => {
    const table = tableOf(1);
    table.arrive(0, 'old', 2);
    assert.equal(table.retryOrEnd(0), 'reissue');
    table.reissue(0, 5, 7);
    assert.equal(table.entry(0)?.attempt, 1);
    assert.deepEqual([table.counts.issued, table.counts.stale, table.outstanding], [2, 1, 1]);
    table.arrive(0, 'old again', 7);
    assert.equal(table.retryOrEnd(0), 'gone');
    assert.deepEqual([table.counts.stale, table.outstanding], [2, 0]);
  });

  it('the ticket table restores its outstanding tickets from its state', () => {
    const table = tableOf(4);
    table.skip(2);
    const restored = TicketTable.restore<string>(table.state, (rank) => 10 + rank);
    assert.deepEqual(
      restored.entries().map(({ order, deadline, state }) => [order, deadline, state]),
      [
        [0, 10, 'issued'],
        [1, 11, 'issued'],
        [3, 12, 'issued'],
      ],
    );
    assert.deepEqual(restored.state, table.state);
  });

  it('the ticket table rejects a transition that the state of a ticket does not allow', () => {
    const table = tableOf(1);
    assert.throws(() => table.take([0]), /ticket 0 is issued, expected arrived/);
    table.skip(0);
    assert.throws(() => {
      table.markDead(0);
    }, /ticket 0 is not outstanding/);
  });
});
