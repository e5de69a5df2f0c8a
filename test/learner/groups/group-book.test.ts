import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { GroupBook } from '../../../learner/groups/group-book.js';

function bookOf(tickets: number): GroupBook<string> {
  const book = new GroupBook<string>();
  for (let i = 0; i < tickets; i++) book.issue(0, 2);
  return book;
}

describe('the group book', () => {
  it('accounts for every ticket at every end', () => {
    const book = bookOf(5);
    for (const order of [0, 1, 4]) book.arrive(order, `group ${order}`, 2);
    assert.deepEqual(book.take([0, 1]), ['group 0', 'group 1']);
    book.train([0, 1]);
    book.skip(2);
    book.die(3);
    assert.deepEqual(book.counts, {
      issued: 5,
      trained: 2,
      skippedZeroVariance: 1,
      stale: 0,
      dead: 1,
      outstanding: 1,
    });
    assert.deepEqual(book.state, {
      nextOrder: 5,
      consumedBelow: 4,
      consumedAbove: [],
      counts: book.counts,
    });
  });

  it('remembers what is consumed above the first ticket that is not', () => {
    const book = bookOf(4);
    book.skip(1);
    book.skip(3);
    assert.deepEqual([book.state.consumedBelow, book.state.consumedAbove], [0, [1, 3]]);
    assert(book.isConsumed(3) && !book.isConsumed(2));
    book.skip(0);
    assert.deepEqual([book.state.consumedBelow, book.state.consumedAbove], [2, [3]]);
  });

  it('counts a reissue as one stale and one more issued', () => {
    const book = bookOf(1);
    book.arrive(0, 'old', 2);
    assert.equal(book.refuseAsStale(0), 'reissue');
    book.reissue(0, 5, 7);
    assert.equal(book.entry(0)?.attempt, 1);
    assert.deepEqual([book.counts.issued, book.counts.stale, book.outstanding], [2, 1, 1]);
    book.arrive(0, 'old again', 7);
    assert.equal(book.refuseAsStale(0), 'gone');
    assert.deepEqual([book.counts.stale, book.outstanding], [2, 0]);
  });

  it('restores from its state what is still outstanding', () => {
    const book = bookOf(4);
    book.skip(2);
    const restored = GroupBook.restore<string>(book.state, (rank) => 10 + rank);
    assert.deepEqual(
      restored.entries().map(({ order, deadline, state }) => [order, deadline, state]),
      [
        [0, 10, 'issued'],
        [1, 11, 'issued'],
        [3, 12, 'issued'],
      ],
    );
    assert.deepEqual(restored.state, book.state);
  });

  it('refuses a move that the ticket is not ready for', () => {
    const book = bookOf(1);
    assert.throws(() => book.take([0]), /ticket 0 is issued, expected arrived/);
    book.skip(0);
    assert.throws(() => {
      book.die(0);
    }, /ticket 0 is not outstanding/);
  });
});
