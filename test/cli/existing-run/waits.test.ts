import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { EventOf } from '../../../shared/wire/run-event.js';
import { waitsOver, waitText } from '../../../cli/existing-run/waits.js';

const step = (step: number, seconds: number, metrics: Record<string, number>): EventOf<'step'> => ({
  ...{ v: 1, kind: 'step', at: 1_000 * seconds, step, version: step },
  metrics: { 'actors/live': 2, ...metrics },
});

describe('the waiting times of learner and actors', () => {
  it('the waiting share is taken over the time between steps, for actors as their mean', () => {
    const waits = waitsOver([
      step(1, 0, { 'idle/groups': 3, 'actors/idle_seconds/ticket': 5 }),
      step(2, 10, { 'idle/groups': 4, 'actors/idle_seconds/ticket': 10 }),
      step(3, 20, { 'idle/groups': 5, 'actors/idle_seconds/ticket': 15 }),
    ]);
    assert.equal(waits?.seconds, 20);
    assert.equal(waits.learner['groups'], 0.1);
    assert.equal(waits.actors['ticket'], 0.25);
    assert.equal(waits.learner['window'], 0);
  });

  it('the waiting share does not decrease when a learner is restarted', () => {
    const waits = waitsOver([
      step(1, 0, { 'idle/groups': 100 }),
      step(2, 10, { 'idle/groups': 0 }),
      step(3, 20, { 'idle/groups': 10 }),
    ]);
    assert.equal(waits?.learner['groups'], 0.5);
  });

  it('an actor that is heard of again brings nothing of what it waited before', () => {
    const sums = [3_000, 3_001, 0, 3_003, 3_004];
    const waits = waitsOver(
      sums.map((ticket, i) =>
        step(i + 1, 10 * i, {
          'actors/idle_seconds/ticket': ticket,
          'actors/live': ticket === 0 ? 0 : 2,
        }),
      ),
    );
    assert.equal(waits?.actors['ticket'], 2 / (40 * 1.6)); // of 40 seconds with 1.6 live actors
  });

  it('what actors report after some steps without a report counts as the time of all these steps', () => {
    const sums = [5, 10, 10, 10, 40];
    const waits = waitsOver(
      sums.map((ticket, i) => step(i + 1, 10 * i, { 'actors/idle_seconds/ticket': ticket })),
    );
    assert.equal(waits?.actors['ticket'], 35 / 80);
  });

  it('the waiting share excludes the time in which the run was down if the steps have durations', () => {
    const waits = waitsOver([
      step(1, 0, { 'idle/groups': 0, seconds: 10 }),
      step(2, 3_600, { 'idle/groups': 5, seconds: 10 }),
    ]);
    assert.deepEqual([waits?.seconds, waits?.learner['groups']], [10, 0.5]);
  });

  it('the actors of a run on examples wait for nothing that matters, since they only evaluate', () => {
    const waiting = { 'sft/nll': 1, 'actors/idle_seconds/ticket': 0 };
    const steps = [
      step(1, 0, waiting),
      step(2, 10, { ...waiting, 'actors/idle_seconds/ticket': 20 }),
    ];
    assert.deepEqual(waitsOver(steps)?.actors, {});
  });

  it('the waiting share is unknown before there are two steps', () => {
    assert.equal(waitsOver([]), undefined);
    assert.equal(waitsOver([step(1, 0, {})]), undefined);
  });

  it('the slowest part is named, with the remedy', () => {
    const text = (learner: Record<string, number>, actors: Record<string, number>) =>
      waitText({ seconds: 60, learner, actors });
    assert.equal(text({ groups: 0.01 }, { ticket: 0.04 }), 'no part waits for long');
    assert.equal(
      text({ groups: 0.01 }, { ticket: 0.4, policy: 0.1 }),
      'the actors wait 40 % of the time for tickets: the learner is the slowest part; fewer actors would be enough',
    );
    assert.match(text({ groups: 0.5 }, { ticket: 0 }), /sampling is the slowest .*more actors/);
    assert.match(text({ groups: 0.5 }, { publish: 0.3 }), /the reward service or NATS is the slow/);
    assert.match(text({ version: 0.2 }, {}), /publishing versions is the slowest/);
    assert.match(text({ window: 0.2 }, {}), /long answers hold it up/);
    assert.match(text({ groups: 0.4 }, { ticket: 0.4 }), /they work in turns/);
  });
});
