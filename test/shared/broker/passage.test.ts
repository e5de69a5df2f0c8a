import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Passage, type QueueSpan } from '../../../shared/broker/passage.js';

/** Looks of which each finds what the test says: first the tickets, then the rollouts. */
function looks(tickets: QueueSpan[], rollouts: QueueSpan[], scored = 0) {
  const spans = { tickets, rollouts };
  return {
    span: (queue: 'tickets' | 'rollouts') => Promise.resolve(spans[queue].shift()),
    scored: () => Promise.resolve(scored),
  };
}

const span = (first: number, last: number): QueueSpan => ({
  messages: last + 1 - first,
  first,
  last,
});
const nothing = span(1, 0);
const none = () => 0;

describe('a passage through the queues', () => {
  it('is over at once where there is nothing', async () => {
    assert.equal(await new Passage(looks([nothing], [nothing]), none).isOver(), true);
  });

  it('needs no queue to run empty: what came later is not waited for', async () => {
    const passing = [span(1, 5), span(3, 9), span(6, 12)];
    const passage = new Passage(looks(passing, [nothing]), none);
    assert.deepEqual([await passage.isOver(), await passage.isOver()], [false, false]);
    assert.equal(await passage.isOver(), true);
  });

  it('looks into the second queue for what has left the first', async () => {
    const passage = new Passage(looks([nothing], [span(1, 5), span(6, 9)]), none);
    assert.deepEqual([await passage.isOver(), await passage.isOver()], [false, true]);
  });

  it('waits for what a stream that lost its end still has, under its new numbers', async () => {
    const passing = [span(1, 50), span(1, 10), span(5, 14), span(11, 20)];
    const passage = new Passage(looks(passing, [nothing]), none);
    for (const isOver of [false, false, false, true]) assert.equal(await passage.isOver(), isOver);
  });

  it('is not over while scored groups are there that have not been received', async () => {
    assert.equal(await new Passage(looks([nothing], [nothing], 3), () => 2).isOver(), false);
    assert.equal(await new Passage(looks([nothing], [nothing], 3), () => 3).isOver(), true);
  });

  it('is not over on a server that has lost the queues', async () => {
    assert.equal(await new Passage(looks([], []), none).isOver(), false);
  });
});
