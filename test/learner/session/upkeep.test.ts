import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';
import { keepUp, type UpkeepOptions } from '../../../learner/session/upkeep.js';
import { recordingLog, type LogLine } from '../../support/log.js';
import { actorLease } from '../../support/messages.js';
import { gate } from '../../support/waiting.js';

describe('the upkeep of a session', () => {
  let done: Record<'extended' | 'checked' | 'maintained', number>;
  let reported: string[];
  let lines: readonly LogLine[];
  let waited = 0; // seconds
  let upkeep: Disposable;
  let isConnected = true;
  let maintained: ReturnType<typeof gate>;
  const refused = {
    version: 3,
    attempts: 1,
    difference: 1,
    band: 0.1,
    mean: 1,
    meanBand: 0.1,
    place: 0,
  };
  const liar = actorLease({ actor: 'liar', refused });

  beforeEach(() => {
    mock.timers.enable({ apis: ['setInterval'] });
    done = { extended: 0, checked: 0, maintained: 0 };
    reported = [];
    isConnected = true;
    waited = 0;
    const recording = recordingLog();
    lines = recording.lines;
    maintained = gate();
    const options: UpkeepOptions = {
      settings: { leaseSeconds: 6 },
      broker: {
        get isConnected() {
          return isConnected;
        },
        events: {
          emit: (event) => {
            reported.push(event.kind);
            return Promise.resolve();
          },
        },
      },
      runWatch: { live: ['liar'], leases: [liar], metrics: {} },
      idle: {
        get seconds() {
          return { groups: waited, window: 0, version: 0 };
        },
      },
      unacked: {
        extendLeases: () => {
          done.extended++;
        },
      },
      audit: {
        checkLiveActors: (live) => {
          assert.deepEqual(live, ['liar']);
          done.checked++;
        },
      },
      publisher: {
        maintain: () => {
          done.maintained++;
          return maintained.opened;
        },
      },
      onCheck: () => reported.push('bill'),
      scope: { track: (task) => task },
      log: recording.log,
    };
    upkeep = keepUp(options);
  });
  afterEach(() => {
    upkeep[Symbol.dispose]();
    mock.timers.reset();
  });

  it('the leases of groups are extended three times in the time of a lease', () => {
    mock.timers.tick(6_000);
    assert.equal(done.extended, 3);
  });

  it('the live actors are checked and their refusals reported every five seconds', () => {
    mock.timers.tick(4_999);
    assert.deepEqual([done.checked, reported], [0, []]);
    mock.timers.tick(1);
    assert.deepEqual([done.checked, reported], [1, ['bill', 'refusal']]);
  });

  it('a learner that had no work for a minute says so after it', () => {
    const said = () => lines.filter(({ waitsFor }) => waitsFor === 'scored groups').length;
    mock.timers.tick(59_999);
    waited = 60;
    assert.equal(said(), 0);
    mock.timers.tick(1);
    assert.equal(said(), 1);
    mock.timers.tick(60_000);
    assert.equal(said(), 1);
  });

  it('the published versions are maintained every two seconds, but not twice at once', async () => {
    mock.timers.tick(4_000);
    assert.equal(done.maintained, 1);
    maintained.open();
    await maintained.opened;
    await new Promise(setImmediate);
    mock.timers.tick(2_000);
    assert.equal(done.maintained, 2);
  });

  it('the published versions are left alone while NATS is away', () => {
    isConnected = false;
    mock.timers.tick(2_000);
    assert.equal(done.maintained, 0);
    isConnected = true;
    mock.timers.tick(2_000);
    assert.equal(done.maintained, 1);
  });

  it('nothing is done any more once the upkeep is disposed of', () => {
    upkeep[Symbol.dispose]();
    mock.timers.tick(60_000);
    assert.deepEqual(done, { extended: 0, checked: 0, maintained: 0 });
  });
});
