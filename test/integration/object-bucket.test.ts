import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { ErrorCode, NatsError } from 'nats';
import type { Broker } from '../../shared/broker/broker.js';
import type { Link } from '../../shared/broker/link.js';
import { ObjectBucket } from '../../shared/broker/object-bucket.js';
import { brokerOn } from '../support/broker.js';
import { NatsServer } from '../support/nats-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';

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

  /** The bucket, with the number of its requests to the leader of the stream. */
  const counted = () => {
    const { jsm } = broker.link;
    let requests = 0;
    const getMessage: typeof jsm.streams.getMessage = (...words) => {
      requests++;
      return jsm.streams.getMessage(...words);
    };
    const link = { ...broker.link, jsm: { streams: { getMessage } } as unknown as Link['jsm'] };
    const bucket = new ObjectBucket(link, 'bodies_test', () => Promise.resolve(2 ** 30));
    return { bucket, requests: () => requests };
  };

  it('objects that are stored at the same time are read apart, and only their entries by way of the leader', async () => {
    const names = ['one', 'two', 'three'];
    const files = names.map((_, i) => randomBytes((17 + i) * 128 * 1_024 + i));
    await Promise.all(names.map((name, i) => broker.bodies.put(name, files[i]!)));
    const { bucket, requests } = counted();
    for (const [i, name] of names.entries()) {
      assert.deepEqual(await bucket.get(name), new Uint8Array(files[i]!));
    }
    assert.equal(requests(), 3);
    for (const name of names) await broker.bodies.delete(name);
  });

  it('an object is read by way of the leader if its stream, made by an older release, allows nothing else', async () => {
    await broker.link.jsm.streams.update('OBJ_bodies_test', { allow_direct: false });
    await broker.bodies.put('old', bytes);
    const { bucket, requests } = counted();
    assert.deepEqual(await bucket.get('old'), new Uint8Array(bytes));
    assert.equal(requests(), 1 + 21);
    await broker.bodies.delete('old');
    await broker.ensureRun({ trainTickets: 1, evalTickets: 1 });
    const { config } = await broker.link.jsm.streams.info('OBJ_bodies_test');
    assert.equal(config.allow_direct, true);
  });

  it('an object whose download breaks off at 60 % is read on from there', async () => {
    await broker.bodies.put('broken', bytes);
    let asked = 0; // chunks, some of them twice
    const proxy = await TcpProxy.before(server.port, () => (sent) => {
      const isBefore = asked < 13;
      asked += sent.toString('latin1').split('PUB $JS.API.DIRECT.GET').length - 1;
      if (isBefore && asked >= 13) proxy.cut();
      return sent;
    });
    await using reader = await brokerOn(server, { natsUrl: `nats://127.0.0.1:${proxy.port}` });
    assert.deepEqual(await reader.bodies.get('broken'), new Uint8Array(bytes));
    assert(asked > 21, `${asked} requests, so none was lost`);
    assert(asked <= 21 + 8, `${asked} requests, so it began again`);
    await broker.bodies.delete('broken');
    await proxy[Symbol.asyncDispose]();
  });
});
