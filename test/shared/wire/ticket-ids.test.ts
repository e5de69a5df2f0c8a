import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { attemptOf, messageIdOf, orderOf, ticketId } from '../../../shared/wire/ticket-ids.js';

describe('the id of a training ticket', () => {
  it('names its place among the tickets of the run', () => {
    assert.equal(ticketId(5), 'train-00000005');
    for (const order of [0, 5, 123_456_789]) assert.equal(orderOf(ticketId(order)), order);
  });

  it('is told from any other text', () => {
    for (const id of ['eval-0-5', 'train-5', 'train-00000005.0', 'train-1234567890123456', ''])
      assert.equal(orderOf(id), undefined, id);
  });
});

describe('the id of a message', () => {
  it('names the attempt that it is about', () => {
    for (const of of [
      { ticketId: 'train-00000005', attempt: 1 },
      { ticketId: 'eval-3-89abcdef-12', attempt: 0 },
      { ticketId: 'with.a.dot', attempt: 12 },
    ]) {
      assert.deepEqual(attemptOf(messageIdOf(of)), of);
    }
  });

  it('is told from any other text', () => {
    for (const id of ['again-7', 'train-00000005', 'train-00000005.x', '.1', 'a.12345678901', ''])
      assert.equal(attemptOf(id), undefined, id);
  });
});
