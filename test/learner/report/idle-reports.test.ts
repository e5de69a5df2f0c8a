import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { IdleReports } from '../../../learner/report/idle-reports.js';
import { IdleClock, type IdleCause } from '../../../learner/step/idle-clock.js';
import { recordingLog } from '../../support/log.js';

describe('the reports of an idle learner', () => {
  function setUp() {
    let now = 0;
    const clock = new IdleClock(() => now);
    const { log, lines } = recordingLog();
    const metrics = () => ({ 'actors/live': 0, 'stream_depth/tickets': 48 });
    const reports = new IdleReports(clock, metrics, log);
    const afterMinute = (cause: IdleCause | undefined, idleSeconds: number) => {
      clock.waitFor(cause);
      now += idleSeconds;
      clock.waitFor(undefined);
      now += 60 - idleSeconds;
      reports.report();
    };
    return { afterMinute, lines };
  }

  it('a learner without work for a minute says what it waits for and what the run looks like', () => {
    const { afterMinute, lines } = setUp();
    afterMinute('groups', 60);
    afterMinute('version', 55);
    assert.deepEqual(
      lines.map(({ waitsFor, liveActors, tickets }) => ({ waitsFor, liveActors, tickets })),
      [
        { waitsFor: 'scored groups', liveActors: 0, tickets: 48 },
        { waitsFor: 'a version to reach the actors', liveActors: 0, tickets: 48 },
      ],
    );
  });

  it('a learner that trained or evaluated meanwhile says nothing', () => {
    const { afterMinute, lines } = setUp();
    afterMinute('groups', 50);
    afterMinute(undefined, 0);
    assert.deepEqual(lines, []);
  });
});
