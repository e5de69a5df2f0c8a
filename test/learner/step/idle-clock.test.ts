import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import { gate } from '../../support/waiting.js';

describe('the idle clock', () => {
  it('the idle clock counts only time without work in flight, by its cause', async () => {
    let now = 0;
    const clock = new IdleClock(() => now);
    clock.waitFor('groups');
    now = 3;
    const [first, second] = [gate(), gate()];
    const [a, b] = [clock.during(first.opened), clock.during(second.opened)];
    now = 10;
    first.open();
    await a;
    now = 20;
    second.open();
    await b; // idle again from here
    now = 21;
    clock.waitFor('window');
    now = 23;
    clock.waitFor(undefined);
    now = 50;
    assert.deepEqual(clock.seconds, { groups: 4, window: 2, version: 0 });
  });

  it('the idle clock treats failed work as ended', async () => {
    let now = 0;
    const clock = new IdleClock(() => now);
    clock.waitFor('version');
    await assert.rejects(clock.during(Promise.reject(new Error('lost'))));
    now = 2;
    assert.equal(clock.seconds.version, 2);
  });
});
