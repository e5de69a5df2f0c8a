import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ticketBound, ticketRoom } from '../../../shared/rl/capacity.js';
import { deadline, smallestUsefulVersion, staleness } from '../../../shared/rl/staleness.js';

describe('staleness', () => {
  it('is counted from the oldest token', () => {
    assert.equal(staleness(7, [5], undefined), 2);
    assert.equal(staleness(7, [7, 6, 4], undefined), 3);
    assert.equal(deadline(7, [6, 4], 4, undefined), 8);
  });

  describe('after version 4 was restored as version 9', () => {
    const rewind = { from: 9, to: 4 };

    it('is what it was for groups from before', () => {
      assert.equal(staleness(9, [4], rewind), 0);
      assert.equal(staleness(9, [3], rewind), 1);
      assert.equal(staleness(11, [3], rewind), 3);
    });

    it('counts the lost steps back and the new ones forward', () => {
      assert.equal(staleness(9, [6], rewind), 2);
      assert.equal(staleness(10, [6], rewind), 3);
    });

    it('is that of the farthest token', () => {
      assert.equal(staleness(9, [4, 7], rewind), 3);
    });
    it('counts as ever from there on', () => {
      assert.equal(staleness(12, [10], rewind), 2);
    });

    it('leaves versions useful that their numbers would exclude', () => {
      assert.equal(smallestUsefulVersion(9, 2, rewind), 2);
      assert.equal(smallestUsefulVersion(10, 2, rewind), 3);
      assert.equal(smallestUsefulVersion(12, 2, rewind), 10);
    });
  });

  it('bounds the versions that are still useful, and 0 is the lowest', () => {
    assert.equal(smallestUsefulVersion(7, 2, undefined), 5);
    assert.equal(smallestUsefulVersion(1, 4, undefined), 0);
  });
});

describe('the capacity law, 2 steps off-policy and 8 groups a batch', () => {
  const start = {
    groupsPerBatch: 8,
    maxStepsOffPolicy: 2,
    version: 5,
    publishedVersion: 5,
    outstanding: 0,
    stepsLeft: Infinity,
  };

  it('allows three batches in all', () => {
    assert.equal(ticketBound(2, 8), 24);
    assert.equal(ticketRoom(start), 24);
    assert.equal(ticketRoom({ ...start, outstanding: 23 }), 1);
    assert.equal(ticketRoom({ ...start, outstanding: 24 }), 0);
  });

  it('allows a batch less for each version that the actors do not have yet', () => {
    assert.equal(ticketRoom({ ...start, publishedVersion: 4 }), 16);
    assert.equal(ticketRoom({ ...start, publishedVersion: 2 }), 0);
    assert.equal(ticketRoom({ ...start, publishedVersion: 1, outstanding: 3 }), 0);
  });

  it('allows no more when the actors are ahead of the confirmation', () => {
    assert.equal(ticketRoom({ ...start, publishedVersion: 6 }), 24);
  });

  it('asks for nothing beyond the steps that are wanted', () => {
    assert.equal(ticketRoom({ ...start, stepsLeft: 1, outstanding: 5 }), 3);
    assert.equal(ticketRoom({ ...start, stepsLeft: 0 }), 0);
  });

  it('is one batch at a time when synchronous', () => {
    const synchronous = { ...start, maxStepsOffPolicy: 0 };
    assert.equal(ticketRoom(synchronous), 8);
    assert.equal(ticketRoom({ ...synchronous, publishedVersion: 4 }), 0);
  });
});
