import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DroughtWatch } from '../../../learner/giving-up/drought-watch.js';
import { scoredGroup } from '../../support/messages.js';

const group = (...rewards: number[]) => {
  const { scores } = scoredGroup();
  return scoredGroup({ scores: scores.map((score, i) => ({ ...score, reward: rewards[i]! })) });
};

describe('a watch for groups without variance', () => {
  it('is over when the limit is reached without a group of variance in between', () => {
    const watch = new DroughtWatch(2);
    watch.skipped(group(1, 1));
    watch.admitted();
    watch.skipped(group(0, 0));
    assert(!watch.signal.aborted);
    watch.skipped(group(0.5, 0.5));
    assert(watch.signal.aborted);
    assert.deepEqual(watch.drought, { groups: 2, reward: 0.25 });
  });

  it('tells what ended it, whatever comes behind', () => {
    const watch = new DroughtWatch(1);
    watch.skipped(group(0, 0));
    watch.skipped(group(1, 1));
    watch.admitted();
    assert.deepEqual(watch.drought, { groups: 1, reward: 0 });
  });

  it('is never over without a limit', () => {
    const watch = new DroughtWatch(0);
    for (let i = 0; i < 10; i += 1) watch.skipped(group(0, 0));
    assert(!watch.signal.aborted);
    assert.equal(watch.drought.groups, 10);
  });
});
