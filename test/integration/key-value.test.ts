import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { KeyValue } from '../../shared/broker/key-value.js';
import { LeaderLease } from '../../shared/wire/ledger.js';
import { brokerOn } from '../support/broker.js';
import { NatsServer } from '../support/nats-server.js';

describe('a bucket of keys and values', () => {
  it('a key is deleted, unless it has a newer value than the one that is to go', async () => {
    await using server = await NatsServer.start();
    await using broker = await brokerOn(server);
    await broker.ensureRun({ trainTickets: 8, evalTickets: 4 });
    const bucket = new KeyValue(broker.link, broker.names.buckets.ledger);
    const lease = { v: 1 as const, holder: 'learner', renewedAt: 7 };
    await bucket.put(LeaderLease, 'key', lease);
    const old = (await bucket.get(LeaderLease, 'key'))!.revision;
    await bucket.put(LeaderLease, 'key', { ...lease, holder: 'standby' });

    await bucket.delete('key', old);
    const { value, revision } = (await bucket.get(LeaderLease, 'key'))!;
    assert.equal(value.holder, 'standby');
    await bucket.delete('key', revision);
    assert.equal(await bucket.get(LeaderLease, 'key'), undefined);
  });
});
