import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { ErrorCode, NatsError } from 'nats';
import type { Broker } from '../../shared/broker/broker.js';
import type { Link } from '../../shared/broker/link.js';
import { ObjectBucket } from '../../shared/broker/object-bucket.js';
import { brokerOn } from '../support/broker.js';
import { NatsServer } from '../support/nats-server.js';

type Publish = Link['js']['publish'];

describe('an object of many chunks, on a real server', { timeout: 60_000 }, () => {
  const bytes = randomBytes(20 * 128 * 1_024 + 1);
  let server: NatsServer;
  let broker: Broker;

  before(async () => {
    server = await NatsServer.start();
    broker = await brokerOn(server);
    await broker.ensureRun({ trainTickets: 1, evalTickets: 1 });
  });
  after(async () => {
    await broker[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });

  /** A bucket whose connection loses the first attempt at some chunks, or its answer. */
  const troubled = (lost: readonly number[], what: 'attempt' | 'answer') => {
    const { js } = broker.link;
    let published = 0;
    const publish: Publish = async (...words) => {
      const isLost = lost.includes(published++);
      if (isLost && what === 'attempt') throw NatsError.errorForCode(ErrorCode.Timeout);
      const ack = await js.publish(...words);
      if (isLost) throw NatsError.errorForCode(ErrorCode.Timeout);
      return ack;
    };
    const link = { ...broker.link, js: { publish } as Link['js'] };
    return {
      bucket: new ObjectBucket(link, 'bodies_test', () => Promise.resolve(2 ** 30)),
      published: () => published,
    };
  };
  const messages = async () =>
    (await broker.link.jsm.streams.info('OBJ_bodies_test')).state.messages;

  it('an object is stored again if its chunks arrived out of order', async () => {
    const { bucket, published } = troubled([2, 3, 7], 'attempt');
    await bucket.put('reordered', bytes);
    assert.deepEqual(await bucket.get('reordered'), new Uint8Array(bytes));
    assert.equal(published(), 21 + 3 + 21 + 1);
    assert.equal(await messages(), 21 + 1); // nothing of the first attempt stays
    await bucket.delete('reordered');
    assert.equal(await messages(), 0);
  });

  it('an object is stored once if answers were lost', async () => {
    const { bucket, published } = troubled([2, 3, 7], 'answer');
    await bucket.put('unanswered', bytes);
    assert.deepEqual(await bucket.get('unanswered'), new Uint8Array(bytes));
    assert.equal(published(), 21 + 3 + 1);
    await bucket.delete('unanswered');
  });
});
