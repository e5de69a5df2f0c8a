import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { register } from 'prom-client';
import { DeadLetters, exportDeadLetters } from '../../../shared/broker/dead-letters.js';
import type { Link } from '../../../shared/broker/link.js';
import { runNames } from '../../../shared/broker/names.js';
import type { BodyStores } from '../../../shared/broker/publish.js';
import { Outages } from '../../../shared/broker/retry.js';
import { silent } from '../../support/log.js';
import { never } from '../../support/waiting.js';

const counted = async () => {
  const { values } = await register.getSingleMetric('broker_messages_dead_lettered_total')!.get();
  return values.map(({ labels, value }) => [labels['stage'], labels['cause'], value]);
};

describe('the count of dead letters', () => {
  it('the count of dead letters is by cause, each from the start, so that an alert can leave one out', async () => {
    exportDeadLetters('actor');
    const zero = ['outdated', 'not_finite', 'other'].map((cause) => ['actor', cause, 0]);
    assert.deepEqual(await counted(), zero);

    const names = runNames('test');
    const js = { publish: () => Promise.resolve({ seq: 1, duplicate: false }) };
    const link: unknown = {
      ...{ js, names, connection: {}, outages: new Outages(), log: silent, signal: never },
    };
    const stores: unknown = { bodies: { withoutWaiting: () => undefined } };
    const letters = new DeadLetters(link as Link, stores as BodyStores, 'actor-0');
    const original = { subject: names.subjects.tickets('train'), data: new Uint8Array() };
    await letters.store('actor', 'outdated: …', original, 'a', { kind: 'outdated' });
    assert.deepEqual(await counted(), [['actor', 'outdated', 1], ...zero.slice(1)]);
  });
});
