import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RunWatch } from '../../../learner/report/run-watch.js';
import type { Backlog } from '../../../shared/broker/backlog.js';
import type { ActorLease } from '../../../shared/wire/actor-lease.js';
import { silent } from '../../support/log.js';
import { actorLease } from '../../support/messages.js';

const nothing = { messages: 0, oldestAgeSeconds: 0, published: 0 };
const settled = { pending: 0, ackPending: 0 };
const backlog: Backlog = {
  streams: {
    tickets: { messages: 5, oldestAgeSeconds: 1.5, published: 9 },
    rollouts: nothing,
    scored: nothing,
    dead: nothing,
  },
  consumers: {
    'tickets.train': { pending: 3, ackPending: 2 },
    'tickets.eval': settled,
    rollouts: settled,
    'scored.train': settled,
    'scored.eval': settled,
  },
};

/** The metrics of a watch after one poll. */
async function seen(leases: ActorLease[], read = () => Promise.resolve(backlog)) {
  using watch = new RunWatch(
    { backlog: read, actors: { list: () => Promise.resolve(leases) } as never },
    silent,
  );
  await watch.poll();
  return watch.metrics;
}

describe('RunWatch', () => {
  const now = Date.now();

  it('the watch sums the values of the live actors', async () => {
    const idleSeconds = { ticket: 2, policy: 1, publish: 0.5 };
    const metrics = await seen([
      actorLease({ inFlight: 3, limit: 8, idleSeconds, lastSeenAt: now }),
      actorLease({ inFlight: 1, limit: 4, idleSeconds, lastSeenAt: now }),
      actorLease({ inFlight: 9, limit: 9, idleSeconds, lastSeenAt: now - 60_000 }), // gone
    ]);
    assert.deepEqual(
      [metrics['actors/live'], metrics['actors/inflight'], metrics['actors/limit']],
      [2, 4, 12],
    );
    assert.equal(metrics['actors/idle_seconds/ticket'], 4);
    assert.equal(metrics['actors/idle_seconds/publish'], 1);
  });

  it('an actor whose clock is wrong counts as live for as long as it renews its lease', async () => {
    let now = 1_000;
    let lease = actorLease({ lastSeenAt: Date.now() - 3_600_000 }); // an hour behind
    const actors = { list: () => Promise.resolve([lease]) } as never;
    const read = { backlog: () => Promise.resolve(backlog), actors };
    using watch = new RunWatch(read, silent, () => now);
    await watch.poll();
    assert.deepEqual(watch.live, []); // it may be long gone
    lease = { ...lease, lastSeenAt: lease.lastSeenAt + 2_000 };
    await watch.poll();
    assert.deepEqual(watch.live, [lease.actor]);
    lease = { ...lease, lastSeenAt: Date.now() + 3_600_000 }; // an hour ahead
    await watch.poll();
    now += 10_001;
    await watch.poll();
    assert.deepEqual(watch.live, []);
  });

  it('the first-token delay is that of the slowest actor with the newest version', async () => {
    const drew = (version: number, seconds: number) =>
      actorLease({ firstToken: { version, seconds }, lastSeenAt: now });
    const metrics = await seen([drew(6, 9), drew(7, 0.2), drew(7, 0.3), actorLease()]);
    assert.equal(metrics['publish_to_first_token_seconds'], 0.3);
    assert(!('publish_to_first_token_seconds' in (await seen([actorLease({ lastSeenAt: now })]))));
  });

  it('the watch reports the messages in the queues', async () => {
    const metrics = await seen([]);
    assert.equal(metrics['stream_depth/tickets'], 5);
    assert.equal(metrics['oldest_age_seconds/tickets'], 1.5);
    assert.equal(metrics['consumer_pending/tickets.train'], 3);
    assert.equal(metrics['consumer_ack_pending/tickets.train'], 2);
  });

  it('the watch runs one poll at a time', async () => {
    let asked = 0;
    let answer = (_: Backlog): void => undefined;
    const read = () => {
      asked++;
      return new Promise<Backlog>((resolve) => (answer = resolve));
    };
    using watch = new RunWatch(
      { backlog: read, actors: { list: () => Promise.resolve([]) } as never },
      silent,
    );
    const polls = [watch.poll(), watch.poll()]; // NATS is away for long
    assert.equal(asked, 1);
    answer(backlog);
    await Promise.all(polls);
    assert.equal(watch.metrics['stream_depth/tickets'], 5);
    void watch.poll();
    assert.equal(asked, 2);
  });

  it('the watch has no metrics if NATS is away at its first poll', async () => {
    assert.deepEqual(await seen([], () => Promise.reject(new Error('away'))), {});
  });
});
