import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { NoSignalWatch } from '../../../learner/stop/no-signal-watch.js';
import { scoredGroup } from '../../support/messages.js';

const group = (...rewards: number[]) => {
  const { scores } = scoredGroup();
  return scoredGroup({ scores: scores.map((score, i) => ({ ...score, reward: rewards[i]! })) });
};

const groupOf = (actor: string) => {
  const scored = group(0, 0);
  return { ...scored, group: { ...scored.group, actor } };
};

describe('NoSignalWatch', () => {
  it('the watch aborts when the limit is reached without a group of variance in between', () => {
    const watch = new NoSignalWatch(2);
    watch.skipped(group(1, 1));
    watch.admitted(group(0, 1));
    watch.skipped(group(0, 0));
    assert(!watch.signal.aborted);
    watch.skipped(group(0.5, 0.5));
    assert(watch.signal.aborted);
    assert.deepEqual(watch.streak, { groups: 2, reward: 0.25 });
  });

  it('the watch keeps the streak that ended it, whatever follows', () => {
    const watch = new NoSignalWatch(1);
    watch.skipped(group(0, 0));
    watch.skipped(group(1, 1));
    watch.admitted(group(0, 1));
    assert.deepEqual(watch.streak, { groups: 1, reward: 0 });
  });

  it('the watch does not abort because of one actor while others that have answered are alive', () => {
    const watch = new NoSignalWatch(10, () => ['honest', 'fast', 'evaluates']);
    watch.admitted(groupOf('honest'));
    for (let i = 0; i < 60; i += 1) watch.skipped(groupOf('fast'));
    for (let i = 0; i < 4; i += 1) watch.skipped(groupOf('honest'));
    assert(!watch.signal.aborted);
    watch.skipped(groupOf('honest'));
    assert(watch.signal.aborted);
  });

  it('the watch aborts because of one actor if it is the only one, or after ten times the limit', () => {
    const live = ['fast', 'evaluates'];
    const watch = new NoSignalWatch(10, () => live);
    watch.admitted(groupOf('gone'));
    for (let i = 0; i < 10; i += 1) watch.skipped(groupOf('fast'));
    assert(watch.signal.aborted);

    const starved = new NoSignalWatch(10, () => [...live, 'honest']);
    starved.admitted(groupOf('honest'));
    for (let i = 0; i < 99; i += 1) starved.skipped(groupOf('fast'));
    assert(!starved.signal.aborted);
    starved.skipped(groupOf('fast'));
    assert(starved.signal.aborted);
  });

  it('the watch never aborts without a limit', () => {
    const watch = new NoSignalWatch(0);
    for (let i = 0; i < 10; i += 1) watch.skipped(group(0, 0));
    assert(!watch.signal.aborted);
    assert.equal(watch.streak.groups, 10);
  });
});
