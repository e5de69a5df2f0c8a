import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Passage } from '../../../shared/broker/passage.js';
import type { QueueState } from '../../../shared/broker/queue-state.js';
import type { Attempt } from '../../../shared/wire/ticket-ids.js';

const held: Attempt = { ticketId: 'train-00000007', attempt: 0 };

/** Polls of which each finds what the test says among the rollouts; the last one stays. */
function polls(rollouts: QueueState[], scored = 0) {
  return {
    rollouts: () => Promise.resolve(rollouts.length > 1 ? rollouts.shift() : rollouts[0]),
    answered: (seq: number) => Promise.resolve(seq === 3 ? held : undefined),
    scored: () => Promise.resolve(scored),
  };
}

function state(live: number[], deliveredTo = 0): QueueState {
  return { live: new Set(live), last: Math.max(0, ...live), deliveredTo };
}

const none = () => 0;

describe('a passage through the queues', () => {
  it('a passage is over at once if the queues are empty', async () => {
    assert.equal(await new Passage(polls([state([])]), none).isOver(), true);
  });

  it('a passage does not wait for messages that arrived after it began', async () => {
    const passage = new Passage(polls([state([3, 4, 5]), state([5, 6]), state([6, 7])]), none);
    assert.deepEqual([await passage.isOver(), await passage.isOver()], [false, false]);
    assert.equal(await passage.isOver(), true);
  });

  it('a passage waits without limit for groups that no reward service has received yet', async () => {
    const passage = new Passage(polls([state([3, 4], 2)]), none);
    for (let i = 0; i < 100; i += 1) assert.equal(await passage.isOver(), false);
    assert.deepEqual(passage.heldLong, []);
  });

  it('a passage stops waiting for a group that a reward service holds, and names it', async () => {
    const passage = new Passage(polls([state([3, 4], 4), state([3], 4)]), none);
    let waits = 0;
    while (!(await passage.isOver())) waits += 1;
    assert(waits >= 3, `${waits}`);
    assert.deepEqual(passage.heldLong, [held]);
  });

  it('a passage is not over while scored groups have not been received', async () => {
    assert.equal(await new Passage(polls([state([])], 3), () => 2).isOver(), false);
    assert.equal(await new Passage(polls([state([])], 3), () => 3).isOver(), true);
  });

  it('a passage is not over on a server that has lost the queues', async () => {
    assert.equal(await new Passage(polls([]), none).isOver(), false);
  });
});
