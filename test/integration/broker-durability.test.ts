import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { cp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { headers } from 'nats';
import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { ticketOf } from '../../shared/broker/dead-letter-watch.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { encode } from '../../shared/wire/codec.js';
import { largestGroupBytes, RolloutGroup } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { brokerOn } from '../support/broker.js';
import { silent } from '../support/log.js';
import { evalResult, rolloutGroup, runConfig, scoredGroup, ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { takeTicketsThroughRestart } from '../support/server-restart.js';
import { gate, until } from '../support/waiting.js';

const limits = { trainTickets: 64, evalTickets: 4 };

describe('a run whose server restarts', { timeout: 240_000 }, () => {
  for (const how of ['SIGTERM', 'SIGKILL'] as const) {
    it(`a run loses nothing and continues by itself after ${how}`, async () => {
      await using server = await NatsServer.start();
      await using learner = await brokerOn(server, { ackWaitMs: { 'tickets.train': 1_000 } });
      await using actor = await brokerOn(server);
      await learner.ensureRun(limits);
      const watched = new AbortController();
      const versions: number[] = [];
      const watching = (async () => {
        for await (const { version } of actor.policy.watch(watched.signal)) versions.push(version);
      })();

      await takeTicketsThroughRestart(server, { learner, actor }, how);
      await learner.policy.publish({
        version: 1,
        samplerPath: 'tinker://a',
        smallestUsefulVersion: 0,
      });
      await until(() => versions.includes(1));
      assert(learner.isConnected);
      watched.abort();
      await watching;
    });
  }

  it('a service opens its buckets as soon as an initially unreachable server is back', async () => {
    await using server = await NatsServer.start();
    await using learner = await brokerOn(server);
    await learner.ensureRun(limits);
    await learner.policy.publish({
      version: 1,
      samplerPath: 'tinker://a',
      smallestUsefulVersion: 0,
    });
    await using actor = await brokerOn(server);
    await server.stop('SIGKILL');
    await until(() => !actor.isConnected);
    const looking = actor.policy.current();
    await server.resume();
    assert.equal((await looking)?.version, 1);
  });

  it('a message that the server kept although it was acknowledged is redelivered', async () => {
    await using server = await NatsServer.start();
    await using learner = await brokerOn(server);
    // No more than these two, so that nothing can be published before the place is free again.
    await learner.ensureRun({ trainTickets: 2, evalTickets: 0 });
    const { signal } = new AbortController();
    const subject = learner.names.subjects.tickets('train');
    const publish = (order: number) =>
      learner.publish(subject, Ticket, ticket({ ticketId: `t-${order}`, order }), {
        ...{ msgId: `t-${order}`, signal },
      });
    await publish(0);
    await publish(1);

    // The state after a kill between two writes: old messages, new consumer state.
    const messages = join(server.streamFolder(learner.names.streams.tickets), 'msgs');
    const away = async (what: () => Promise<void>) => {
      await server.stop();
      await what();
      await server.resume();
      await until(() => learner.isConnected);
    };
    await away(() => cp(messages, `${messages}.before`, { recursive: true }));
    const stopping = new AbortController();
    const holding = gate();
    const taken: number[] = [];
    const options = { signal: stopping.signal, log: silent, stage: 'actor', concurrency: 4 };
    const consuming = consume(learner, 'tickets.train', Ticket, options, async ({ value }) => {
      taken.push(value.order);
      // This one is leased all the time, so the ack floor stays below it.
      if (value.order === 0) await holding.opened;
    });
    await until(async () => (await learner.depths()).tickets === 1);
    await away(async () => {
      await rm(messages, { recursive: true });
      await rename(`${messages}.before`, messages);
    });
    assert.equal((await learner.depths()).tickets, 2);
    assert.deepEqual(taken.toSorted(), [0, 1]);

    await publish(2);
    await until(() => taken.includes(2) && taken.filter((order) => order === 1).length === 2);
    holding.open();
    await until(async () => (await learner.depths()).tickets === 0);
    stopping.abort();
    await consuming;
  });

  it('a watcher sees versions that are published after the server has lost the newest', async () => {
    await using server = await NatsServer.start();
    await using learner = await brokerOn(server);
    await using actor = await brokerOn(server);
    await learner.ensureRun(limits);
    const publish = (version: number) =>
      learner.policy.publish({
        version,
        samplerPath: `tinker://run/${version}`,
        smallestUsefulVersion: 0,
      });
    const watched = new AbortController();
    const versions: number[] = [];
    const watching = (async () => {
      for await (const { version } of actor.policy.watch(watched.signal)) versions.push(version);
    })();

    // As after a power failure: an older state of the stream on the disk.
    const messages = join(server.streamFolder(`KV_${learner.names.buckets.policy}`), 'msgs');
    const away = async (what: () => Promise<void>) => {
      await server.stop();
      await what();
      await server.resume();
      await until(() => learner.isConnected && actor.isConnected);
    };
    await publish(0);
    await away(() => cp(messages, `${messages}.before`, { recursive: true }));
    for (const version of [1, 2, 3]) await publish(version);
    await until(() => versions.includes(3));
    await away(async () => {
      await rm(messages, { recursive: true });
      await rename(`${messages}.before`, messages);
    });
    assert.equal((await learner.policy.current())?.version, 0);
    await publish(4);
    await until(() => versions.includes(4));
    watched.abort();
    await watching;
  });

  it('a run is laid out again when the server comes back without its files', async () => {
    await using server = await NatsServer.start();
    await using learner = await brokerOn(server);
    await learner.ensureRun(limits);
    const { signal } = new AbortController();
    await server.stop();
    await until(() => !learner.isConnected);
    await server.forget();
    const subject = learner.names.subjects.tickets('train');
    const published = learner.publish(subject, Ticket, ticket(), { msgId: 't-0', signal });
    await server.resume();
    await published;
    assert.equal((await learner.depths()).tickets, 1);
  });

  it('a message that was taken before a restart can be acknowledged after it', async () => {
    await using server = await NatsServer.start();
    await using learner = await brokerOn(server);
    await learner.ensureRun(limits);
    const stopping = new AbortController();
    const { signal } = stopping;
    await learner.publish(learner.names.subjects.tickets('train'), Ticket, ticket(), {
      msgId: 't-0',
      signal,
    });
    const taken = gate();
    const release = gate();
    let deliveries = 0;
    const options = { signal, log: silent, stage: 'actor', concurrency: 1 };
    const consuming = consume(learner, 'tickets.train', Ticket, options, async () => {
      deliveries++;
      taken.open();
      await release.opened;
    });
    await taken.opened;
    await server.stop('SIGKILL');
    release.open();
    await server.resume();
    await until(async () => (await learner.depths()).tickets === 0);
    assert.equal(deliveries, 1);
    stopping.abort();
    await consuming;
  });
});

describe('a message larger than the server takes', { timeout: 30_000 }, () => {
  let server: NatsServer;
  let broker: Broker;
  let stopping: AbortController;
  before(async () => {
    server = await NatsServer.start({ maxPayload: 16_384 });
  });
  after(() => server[Symbol.asyncDispose]());
  beforeEach(async () => {
    stopping = new AbortController();
    broker = await brokerOn(server);
    await broker.ensureRun(limits);
  });
  afterEach(async () => {
    await broker.deleteRun();
    await broker[Symbol.asyncDispose]();
  });

  const large = rolloutGroup({}, 8_000); // 2 rollouts of 8,000 tokens, about 128 kB
  const scored = scoredGroup({ group: large });
  const send = (msgId = 'g-0') =>
    broker.publish(broker.names.subjects.rollouts('actor-0'), RolloutGroup, large, {
      msgId,
      signal: stopping.signal,
    });
  const bodies = async () => {
    // Not the client's list, which never returns if the last object is deleted meanwhile.
    const { bodies: bucket } = broker.names.objects;
    const { state } = await broker.link.jsm.streams.info(`OBJ_${bucket}`, {
      subjects_filter: `$O.${bucket}.M.>`,
    });
    return Object.keys(state.subjects ?? {}).length;
  };
  const consumeRollouts = (handle: (group: RolloutGroup) => Promise<void>) =>
    consume(
      broker,
      'rollouts',
      RolloutGroup,
      { signal: stopping.signal, log: silent, stage: 'reward', concurrency: 1 },
      ({ value }) => handle(value),
    );

  const uploads = async () =>
    (await broker.link.jsm.streams.info(broker.names.streams.uploads)).state.messages;
  const sendScored = () =>
    broker.publish(broker.names.subjects.scored('train'), ScoredGroup, scored, {
      msgId: 'train-00000007.0',
      signal: stopping.signal,
    });

  it('an actor uploads a large message in chunks, which are deleted when it is acknowledged', async () => {
    await send();
    assert.equal(await uploads(), 11); // of 12 kB
    assert.equal(await bodies(), 0);
    const received: RolloutGroup[] = [];
    const consuming = consumeRollouts((group) => {
      received.push(group);
      return Promise.resolve();
    });
    await until(async () => received.length === 1 && (await uploads()) === 0);
    assert.deepEqual(received[0], large);
    stopping.abort();
    await consuming;
  });

  it('a large event is stored without what makes it large, and says so', async () => {
    const answers = { correct: Array(8_000).fill(1), total: Array(8_000).fill(1) };
    const result = evalResult({ version: 7, answers: { sampled: answers, greedy: answers } });
    await broker.events.emit({ v: 1, at: 0, kind: 'eval', result });
    const none = { correct: [], total: [] };
    const shorter = { ...result, answers: { sampled: none, greedy: none } };
    assert.deepEqual((await broker.events.newest('eval'))?.result, shorter);

    const metrics = Object.fromEntries(Array.from({ length: 2_000 }, (_, i) => [`m/${i}`, i]));
    await broker.events.emit({ v: 1, at: 0, kind: 'step', step: 1, version: 1, metrics });
    const step = await broker.events.newest('step');
    assert.deepEqual([step?.metrics['m/0'], step?.metrics['metrics_left_out']], [0, 1_000]);
    assert.equal(await bodies(), 0);
  });

  it('a large message that is published twice keeps one body', async () => {
    await sendScored();
    assert.equal((await sendScored()).isDuplicate, true);
    assert.equal(await bodies(), 1);
  });

  it('a large message whose body does not arrive is dead-lettered', async () => {
    await send();
    await broker.link.jsm.streams.purge(broker.names.streams.uploads);
    const consuming = consumeRollouts(() => Promise.reject(new Error('must not be handled')));
    for await (const { reason } of broker.deadLetters.read(stopping.signal)) {
      assert.match(
        reason,
        /^failed 5 times, last error: offbeat\.test\.rollouts\.actor-0: its body among offbeat\.test\.uploads\.actor-0 is missing$/,
      );
      stopping.abort();
    }
    await consuming;
  });

  it('a large message whose body arrives late is handled', async () => {
    const subject = broker.names.subjects.rollouts('actor-0');
    const fields = headers();
    fields.set('Offbeat-Body', 'late');
    await broker.link.js.publish(subject, new Uint8Array(), { headers: fields });
    const taken = gate();
    const log = Object.assign(Object.create(silent) as typeof silent, { warn: taken.open });
    const received: RolloutGroup[] = [];
    const options = { signal: stopping.signal, log, stage: 'reward', concurrency: 1 };
    const consuming = consume(broker, 'rollouts', RolloutGroup, options, ({ value }) => {
      received.push(value);
      return Promise.resolve();
    });
    await taken.opened; // it logs the failure
    await broker.bodies.put('late', encode(RolloutGroup, large));
    await until(() => received.length === 1);
    assert.deepEqual(received[0], large);
    stopping.abort();
    await consuming;
    assert.equal((await broker.depths()).dead, 0);
  });

  it('a large message whose body is damaged is dead-lettered at once by each reader', async () => {
    await sendScored();
    const stream = `OBJ_${broker.names.objects.bodies}`;
    await broker.link.jsm.streams.deleteMessage(stream, 1); // its first chunk
    const options = { signal: stopping.signal, log: silent, stage: 'learner', concurrency: 1 };
    const consuming = consume(broker, 'scored.train', ScoredGroup, options, () =>
      Promise.reject(new Error('must not be handled')),
    );
    for await (const letter of broker.deadLetters.read(stopping.signal)) {
      assert.match(letter.reason, /^object train-00000007\.0-\S+ of bodies_test is damaged/);
      assert.deepEqual(ticketOf(letter), { ticketId: 'train-00000007', attempt: 0 });
      stopping.abort();
    }
    await consuming;
    assert.deepEqual(await broker.depths(), { tickets: 0, rollouts: 0, scored: 0, dead: 1 });
    assert.equal(await bodies(), 0);
  });

  it('a message larger than any group of the run is dead-lettered unread', async () => {
    const config = runConfig({ groupSize: 16 });
    await new RunConfigStore(broker).put(config);
    const bound = largestGroupBytes(config);
    const key = Buffer.from('huge').toString('base64');
    const entry = { nuid: 'n', size: bound + 1, chunks: 9, digest: 'SHA-256=none' };
    await broker.link.js.publish(`$O.bodies_test.M.${key}`, JSON.stringify(entry));
    const fields = headers();
    fields.set('Offbeat-Body', 'huge');
    const subject = broker.names.subjects.rollouts('actor-0');
    await broker.link.js.publish(subject, new Uint8Array(), { headers: fields });
    const consuming = consumeRollouts(() => Promise.reject(new Error('must not be handled')));
    for await (const { reason } of broker.deadLetters.read(stopping.signal)) {
      const found = `object huge of bodies_test has ${bound + 1} bytes; at most ${bound} are read`;
      assert.equal(reason, found);
      stopping.abort();
    }
    await consuming;
  });

  it('a large message is dead-lettered whole, for inspection', async () => {
    const data = randomBytes(100_000);
    await broker.deadLetters.store('reward', 'no such problem', {
      subject: 'offbeat.test.x',
      data,
    });
    for await (const letter of broker.deadLetters.read(stopping.signal)) {
      assert.deepEqual(Buffer.from(letter.data), data);
      stopping.abort();
    }
  });
});
