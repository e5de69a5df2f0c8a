import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { orderName, orderOf, readableId } from '../../../shared/base/ticket-name.js';
import {
  attemptOf,
  messageIdOf,
  newTicketKey,
  TicketIds,
} from '../../../shared/wire/ticket-ids.js';

const key = { v: 1, secret: '0'.repeat(64), keyedFrom: 0 } as const;

describe('the id of a training ticket', () => {
  it('a ticket id contains the order of the ticket among those of the run', () => {
    const ids = new TicketIds(newTicketKey());
    for (const order of [0, 5, 123_456_789]) {
      const id = ids.of(order, 0);
      assert.match(id, /^train-\d{8,}-[0-9a-f]{16}$/);
      assert.deepEqual([orderOf(id), readableId(id)], [order, orderName(order)]);
      assert.equal(ids.orderOf({ ticketId: id, attempt: 0 }), order);
    }
    assert.equal(orderName(5), 'train-00000005');
  });

  it('a ticket id is the same whenever a learner with the same key computes it', () => {
    assert.equal(new TicketIds(key).of(7, 1), 'train-00000007-9df715df4f6bd9b7');
  });

  it('a ticket id reveals nothing about the ids of other tickets, attempts or runs', () => {
    const [ids, others] = [new TicketIds(newTicketKey()), new TicketIds(newTicketKey())];
    const parts = [ids.of(7, 0), ids.of(7, 1), ids.of(8, 0), others.of(7, 0)].map((id) =>
      id.slice(-16),
    );
    assert.equal(new Set(parts).size, 4);
  });

  it('a forged ticket id is recognized by its last part, also with that of another attempt', () => {
    const ids = new TicketIds(newTicketKey());
    const madeUp = ['train-00000007', `train-00000007-${'0'.repeat(16)}`, ids.of(8, 0)];
    const asFirst = [...madeUp.slice(0, 2), ids.of(7, 1), 'eval-3-7-0123456789abcdef', ''];
    for (const ticketId of asFirst) assert.equal(ids.orderOf({ ticketId, attempt: 0 }), undefined);
    assert.equal(ids.orderOf({ ticketId: ids.of(7, 0), attempt: 1 }), undefined);
  });

  it('a ticket id has no such part if the ticket was issued before there was a key', () => {
    const ids = new TicketIds(newTicketKey(10));
    assert.equal(ids.of(9, 1), 'train-00000009');
    assert.equal(ids.orderOf({ ticketId: 'train-00000009', attempt: 0 }), 9);
    assert.match(ids.of(10, 0), /^train-00000010-/);
    assert.equal(ids.orderOf({ ticketId: 'train-00000010', attempt: 0 }), undefined);
  });

  it('a ticket id is distinguished from any other text', () => {
    for (const id of [
      ...['eval-0-5', 'train-5', 'train-00000005.0', 'train-1234567890123456', ''],
      ...['train-00000005-', 'train-00000005-0123456789ABCDEF', 'train-00000005-0123456789abcde'],
    ]) {
      assert.equal(orderOf(id), undefined, id);
      assert.equal(readableId(id), id);
    }
  });
});

describe('the id of a message', () => {
  it('the id of a message names the attempt that it is about', () => {
    for (const of of [
      { ticketId: 'train-00000005', attempt: 1 },
      { ticketId: 'train-00000005-0123456789abcdef', attempt: 0 },
      { ticketId: 'eval-3-12-0123456789abcdef', attempt: 0 },
      { ticketId: 'with.a.dot', attempt: 12 },
    ]) {
      assert.deepEqual(attemptOf(messageIdOf(of)), of);
    }
  });

  it('the id of a message is distinguished from any other text', () => {
    for (const id of ['again-7', 'train-00000005', 'train-00000005.x', '.1', 'a.12345678901', ''])
      assert.equal(attemptOf(id), undefined, id);
  });
});
