import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RefusalReports } from '../../../learner/report/refusal-reports.js';
import type { RunEvent } from '../../../shared/wire/run-event.js';
import { silent } from '../../support/log.js';
import { actorLease } from '../../support/messages.js';

const finding = { version: 3, difference: 0.5, band: 1e-3, mean: 0.1, meanBand: 2e-4, place: 1 };
const [first, second] = ['http://gpu-0:8000', 'http://gpu-1:8000'];

/** An actor with two servers, the second of which does not reproduce a version. */
const leaseWith = (version: number, attempts: number) =>
  actorLease({
    actor: 'a',
    engines: [
      { url: first, adapters: 2, slots: 6 },
      { url: second, adapters: 0, slots: 6, refused: { ...finding, version, attempts } },
    ],
  });

describe('the reports of refused versions', () => {
  it('a server that does not reproduce a version is reported once for each version, though its actor samples on', async () => {
    const events: RunEvent[] = [];
    const emit = (event: RunEvent) => Promise.resolve(void events.push(event));
    const reports = new RefusalReports({ emit }, silent);
    await reports.report([leaseWith(3, 1)]);
    await reports.report([leaseWith(3, 2)]);
    await reports.report([leaseWith(4, 1)]);
    const told = events.map(({ at: _at, ...event }) => event);
    const event = { v: 1, kind: 'refusal', actor: 'a', engine: second, ...finding };
    assert.deepEqual(told, [event, { ...event, version: 4 }]);
  });

  it('an actor that claims a new refusal with each lease does not fill the log of events', async () => {
    const actors: string[] = [];
    const emit = (event: RunEvent) =>
      Promise.resolve(void (event.kind === 'refusal' && actors.push(event.actor)));
    const reports = new RefusalReports({ emit }, silent);
    for (let version = 0; version < 200; version++) await reports.report([leaseWith(version, 1)]);
    assert(actors.length >= 64 && actors.length < 70, String(actors.length));
    await reports.report([{ ...leaseWith(3, 1), actor: 'b' }]);
    assert.equal(actors.at(-1), 'b');
  });

  it('an actor and its servers are reported apart, and again if the event was lost', async () => {
    const events: RunEvent[] = [];
    let isAway = true;
    const emit = (event: RunEvent) => {
      if (isAway) return Promise.reject(new Error('NATS is away'));
      return Promise.resolve(void events.push(event));
    };
    const reports = new RefusalReports({ emit }, silent);
    const lease = { ...leaseWith(3, 1), refused: { ...finding, attempts: 1 } };
    await reports.report([lease]);
    isAway = false;
    for (let i = 0; i < 2; i++) await reports.report([lease]);
    const told = events.map((event) => (event.kind === 'refusal' ? event.engine : 'another'));
    assert.deepEqual(told, [undefined, second]);
  });
});
