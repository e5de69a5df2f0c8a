import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  flowOf,
  actorsWaiting,
  bottleneck,
  learnerWaiting,
} from '../../../cli/dashboard/run/flow.js';
import { leaseAfter, snapshot, stepPoint } from '../../support/run-view.js';

describe('the flow of a run', () => {
  it('the flow of a run has no rates at the first reading', () => {
    const { tickets, versionsPerMinute, actors } = flowOf([snapshot(3, [leaseAfter(3)])]);
    assert.deepEqual(tickets, {
      ...{ perSecond: undefined, waiting: 2, inHands: 1, oldestAgeSeconds: 1.5 },
    });
    assert.equal(versionsPerMinute, undefined);
    assert.equal(actors[0]?.groupsPerSecond, undefined);
  });

  it('the flow of a run has the rates between the first and the last reading', () => {
    const flow = flowOf([snapshot(0, [], 5), snapshot(4, [], 6), snapshot(10, [], 7)]);
    assert.deepEqual(
      [flow.tickets, flow.rollouts, flow.scored].map(({ perSecond }) => perSecond),
      [4, 3, 2],
    );
    assert.equal(flow.versionsPerMinute, 12);
  });

  it('the flow of a run shows groups that await their checkpoint apart from the backlog of scored groups', () => {
    const whole = flowOf([snapshot(3)]);
    const { scored, awaitingCheckpoint } = flowOf([snapshot(3)], { groups_awaiting_checkpoint: 1 });
    assert.deepEqual([scored.inHands, awaitingCheckpoint], [whole.scored.inHands - 1, 1]);
    // A step that is older than the newest checkpoint cannot make a backlog negative.
    const old = flowOf([snapshot(3)], { groups_awaiting_checkpoint: 700 });
    assert.deepEqual([old.awaitingCheckpoint, old.scored.inHands >= 0], [1, true]);
  });

  it('the flow of a run has no rate for a queue that was created again', () => {
    assert.equal(
      flowOf([snapshot(10), { ...snapshot(0), at: 20_000 }]).tickets.perSecond,
      undefined,
    );
  });

  it('the flow of a run shows the lag and the activity of each actor', () => {
    const snapshots = [0, 10].map((at) => snapshot(at, [leaseAfter(at)]));
    assert.deepEqual(flowOf(snapshots).actors, [
      {
        ...{ actor: 'actor-0', isLive: true, isQuarantined: false, refused: null },
        ...{ version: 6, behind: 1, groups: 20, inFlight: 3, limit: 8, seenSecondsAgo: 0 },
        ...{ groupsPerSecond: 2, idle: { ticket: 0.5, policy: 0, publish: 0 } },
      },
    ]);
  });

  it('the flow of a run shows an actor that has refused every version', () => {
    const { version: _, ...lease } = leaseAfter(1);
    const finding = { difference: 1, band: 1e-3, mean: 1, meanBand: 2e-4, place: 0 };
    const refused = { version: 7, attempts: 1, ...finding };
    const [actor] = flowOf([snapshot(1, [{ ...lease, refused }])]).actors;
    const { version, behind, refused: shown } = actor!;
    assert.deepEqual([version, behind, shown], [null, null, 7]);
  });

  it('the flow of a run has no rates of an actor across a restart', () => {
    const restarted = leaseAfter(1, { lastSeenAt: 10_000 });
    const [actor] = flowOf([snapshot(0, [leaseAfter(5)]), snapshot(10, [restarted])]).actors;
    assert.equal(actor?.groupsPerSecond, undefined);
  });

  it('the flow of a run drops actors that have gone', () => {
    assert.deepEqual(flowOf([snapshot(200, [leaseAfter(3)])]).actors, []);
  });
});

describe('the waiting times on the dashboard', () => {
  const steps = Array.from({ length: 20 }, (_, i) => stepPoint(i + 1));

  it('the waiting time of the learner is taken from its last ten steps, by cause', () => {
    assert.deepEqual(learnerWaiting({ steps }), {
      ...{ who: 'learner', share: 0.25 },
      causes: [{ share: 0.25, what: 'scored groups' }],
    });
    assert.equal(learnerWaiting({ steps: steps.slice(0, 1) }), undefined);
  });

  it('the waiting time of an actor is given by cause', () => {
    const flow = flowOf([0, 10].map((at) => snapshot(at, [leaseAfter(at)])));
    const [actor] = actorsWaiting(flow);
    assert.equal(actor?.share, 0.5);
    assert.equal(actor.causes[0]!.what, 'tickets');
  });

  it('the waiting times are summed up in the same sentence as by offbeat status', () => {
    assert.equal(bottleneck({ steps: [] }), 'Not known yet.');
    assert.match(bottleneck({ steps }), /^The learner waits 25 % of the time for scored groups: /);
  });
});
