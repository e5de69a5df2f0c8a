import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { connect, headers } from 'nats';
import type { Broker } from '../../shared/broker/broker.js';
import { consume, type Delivery, type Source } from '../../shared/broker/consume.js';
import { Puller } from '../../shared/broker/puller.js';
import type { DeadLetter } from '../../shared/broker/dead-letters.js';
import { PermanentError } from '../../shared/base/errors.js';
import { notFinite } from '../../shared/wire/death-cause.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { brokerOn } from '../support/broker.js';
import { silent } from '../support/log.js';
import { rolloutGroup, scoredGroup, ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { gate, until } from '../support/waiting.js';

const limits = { trainTickets: 4, evalTickets: 2 };
const bounded = { timeout: 120_000 };

describe('the queues of a run on a real server', bounded, () => {
  let server: NatsServer;
  let learner: Broker;
  let stopping: AbortController;
  let consuming: Promise<void>[];

  before(async () => {
    server = await NatsServer.start();
  });
  after(() => server[Symbol.asyncDispose]());
  beforeEach(async () => {
    stopping = new AbortController();
    consuming = [];
    learner = await brokerOn(server, {
      client: 'learner',
      ackWaitMs: { 'tickets.train': 600, rollouts: 600 },
    });
    await learner.ensureRun(limits);
  });
  afterEach(async () => {
    stopping.abort();
    await Promise.all(consuming);
    await learner.deleteRun();
    await learner[Symbol.asyncDispose]();
  });

  const issue = (order: number, over: Partial<Ticket> = {}, to: Broker = learner) => {
    const message = ticket({ ticketId: `t-${order}`, order, ...over });
    return to.publish(to.names.subjects.tickets(message.split), Ticket, message, {
      msgId: `${message.ticketId}-${message.attempt}`,
      signal: stopping.signal,
    });
  };
  const takeTickets = (
    handle: (delivery: Delivery<Ticket>) => Promise<void>,
    {
      on = learner,
      source = 'tickets.train',
      signal = stopping.signal,
    }: { on?: Broker; source?: Source; signal?: AbortSignal } = {},
  ) => {
    const options = { signal, log: silent, stage: 'actor', concurrency: 1 };
    const running = consume(on, source, Ticket, options, handle);
    consuming.push(running);
    return running;
  };
  const depth = async (queue: 'tickets' | 'rollouts' | 'scored' | 'dead') =>
    (await learner.depths())[queue];
  const firstDeadLetter = async (): Promise<DeadLetter> => {
    const looking = new AbortController();
    for await (const letter of learner.deadLetters.read(looking.signal)) {
      looking.abort();
      return letter;
    }
    throw new Error('unreachable');
  };

  it('the queue delivers each ticket to exactly one of several actors and deletes it once acknowledged', async () => {
    await using other = await brokerOn(server, { client: 'actor-1' });
    const taken: string[] = [];
    const take = ({ value }: Delivery<Ticket>) => note(taken, value.ticketId);
    const done = [takeTickets(take), takeTickets(take, { on: other })];
    for (let order = 0; order < 12; order++) await issue(order);
    await until(async () => taken.length === 12 && (await depth('tickets')) === 0);
    assert.deepEqual(taken.toSorted(), Array.from({ length: 12 }, (_, i) => `t-${i}`).toSorted());
    stopping.abort();
    await Promise.all(done);
  });

  it('the queue keeps training and evaluation tickets apart', async () => {
    const seen: [string, string][] = [];
    void takeTickets(({ value }) => note(seen, ['train', value.split]));
    void takeTickets(({ value }) => note(seen, ['eval', value.split]), {
      source: 'tickets.eval',
    });
    await issue(0);
    await issue(1, { split: 'eval' });
    await until(() => seen.length === 2);
    assert.deepEqual(seen.toSorted(), [
      ['eval', 'eval'],
      ['train', 'train'],
    ]);
  });

  it('the broker counts all tickets ever issued, including finished ones', async () => {
    assert.equal(await learner.ticketsSoFar(), 0);
    for (const order of [0, 1, 1, 2]) await issue(order); // one of them twice
    await issue(3, { split: 'eval' });
    void takeTickets(() => Promise.resolve());
    await until(async () => (await depth('tickets')) === 1);
    await learner.clearQueue('tickets.eval');
    assert.equal(await learner.ticketsSoFar(), 4);
  });

  it('the broker reports the tickets that wait for an actor, and the actors that wait for one', async () => {
    const { opened, open } = gate();
    assert.deepEqual(await learner.tickets.demand(), { undelivered: 0, requests: 0 });
    for (const order of [0, 1, 2]) await issue(order);
    await issue(0, { split: 'eval' });
    void takeTickets(() => opened);
    await until(async () => (await learner.tickets.demand()).undelivered === 2);
    assert.equal((await learner.tickets.demand()).requests, 0);
    void takeTickets(() => opened);
    void takeTickets(() => opened);
    void takeTickets(() => opened);
    await until(async () => (await learner.tickets.demand()).requests === 1);
    assert.equal((await learner.tickets.demand()).undelivered, 0);
    open();
  });

  it('a consumer asks once for as many groups as it can handle, but once for each ticket', async () => {
    const lanes = { signal: stopping.signal, log: silent, stage: 'reward', concurrency: 8 };
    const { jsm, names } = learner.link;
    const requests = async (source: Source) => {
      const { stream, durable } = names.consumer(source);
      return (await jsm.consumers.info(stream, durable)).num_waiting;
    };
    const { stream, durable } = names.consumer('rollouts');
    const asked: string[] = [];
    learner.link.connection.subscribe(`$JS.API.CONSUMER.MSG.NEXT.${stream}.${durable}`, {
      callback: (_, message) => asked.push(message.string()),
    });
    const seen: number[] = [];
    const take = ({ value }: Delivery<RolloutGroup>) => note(seen, value.ticket.order);
    consuming.push(consume(learner, 'rollouts', RolloutGroup, lanes, take));
    const leaseTicket = () => Promise.resolve();
    consuming.push(consume(learner, 'tickets.train', Ticket, lanes, leaseTicket));
    await until(async () => (await requests('tickets.train')) === 8);
    assert.equal(await requests('rollouts'), 1);
    await until(() => asked.length === 1);
    assert.match(asked[0]!, /"batch":8/);
    const { signal } = stopping;
    const orders = Array.from({ length: 20 }, (_, order) => order);
    for (const order of orders) {
      const group = rolloutGroup({ ticket: ticket({ ticketId: `t-${order}`, order }) });
      const subject = names.subjects.rollouts(group.actor);
      await learner.publish(subject, RolloutGroup, group, { msgId: `g-${order}`, signal });
    }
    await until(async () => seen.length >= 20 && (await depth('rollouts')) === 0);
    assert.deepEqual(
      seen.toSorted((a, b) => a - b),
      orders,
    );
  });

  it('the broker reports waiting messages, their age and the number of leased ones', async () => {
    const { opened, open } = gate();
    void takeTickets(() => opened);
    await issue(0);
    await issue(1);
    await issue(2, { split: 'eval' });
    const held = async () => (await learner.backlog()).consumers['tickets.train'].ackPending === 1;
    await until(held);
    const { streams, consumers } = await learner.backlog();
    assert.deepEqual(consumers['tickets.train'], { pending: 1, ackPending: 1 });
    assert.deepEqual(consumers['tickets.eval'], { pending: 1, ackPending: 0 });
    assert.equal(streams.tickets.messages, 3);
    assert(streams.tickets.oldestAgeSeconds > 0);
    assert.deepEqual(streams.rollouts, { messages: 0, oldestAgeSeconds: 0, published: 0 });
    open();
  });

  it('the broker clears one kind of tickets, including leased ones', async () => {
    const seen: string[] = [];
    const { opened, open } = gate();
    void takeTickets(
      async ({ value }) => {
        await note(seen, value.ticketId);
        await opened;
      },
      { source: 'tickets.eval' },
    );
    await issue(0);
    await issue(1, { split: 'eval' });
    await issue(2, { split: 'eval' });
    await until(() => seen.length === 1);
    await learner.clearQueue('tickets.eval');
    assert.equal(await depth('tickets'), 1);
    open();
    await issue(3, { split: 'eval' });
    await until(() => seen.length === 2);
    assert.deepEqual(seen, ['t-1', 't-3']);
  });

  it('a message that is published twice with one id is stored once', async () => {
    const first = await issue(0);
    const second = await issue(0);
    assert.deepEqual([first.isDuplicate, second.isDuplicate], [false, true]);
    assert.equal(second.seq, first.seq);
    assert.equal(await depth('tickets'), 1);
  });

  it('a publisher blocks while the ticket stream is full and continues when a ticket is done', async () => {
    for (let order = 0; order < 6; order++) await issue(order);
    let isPublished = false;
    const seventh = issue(6).then(() => {
      isPublished = true;
    });
    await Promise.race([seventh, new Promise((resolve) => setTimeout(resolve, 300))]);
    assert.equal(isPublished, false);
    assert.equal(await depth('tickets'), 6);

    const one = new AbortController();
    const takeOne = () => {
      one.abort();
      return Promise.resolve();
    };
    await takeTickets(takeOne, { signal: one.signal });
    await seventh;
    assert.equal(await depth('tickets'), 6);
  });

  it('a blocked publisher gives up when its signal aborts', async () => {
    for (let order = 0; order < 6; order++) await issue(order);
    const seventh = issue(6);
    stopping.abort(new Error('shutting down'));
    await assert.rejects(seventh, /shutting down/);
  });

  it('the ticket of a vanished actor is delivered to another', async () => {
    const vanishing = await brokerOn(server, { client: 'actor-0' });
    const held = gate();
    const lost = consume(
      vanishing,
      'tickets.train',
      Ticket,
      { signal: stopping.signal, log: silent, stage: 'actor', concurrency: 1 },
      async () => {
        held.open();
        await new Promise(() => undefined); // as a killed process: it never settles anything
      },
    );
    void lost.catch(() => undefined);
    await issue(0);
    await held.opened;
    await vanishing.link.connection.close();

    const counts: number[] = [];
    void takeTickets(({ deliveryCount }) => note(counts, deliveryCount));
    await until(() => counts.length > 0);
    assert.deepEqual(counts, [2]);
  });

  it('a consumer extends the lease of a handler that runs longer than the ack wait', async () => {
    const starts: string[] = [];
    void takeTickets(async () => {
      starts.push('first');
      await new Promise((resolve) => setTimeout(resolve, 1_500)); // ack wait is 600 ms
    });
    const other = await brokerOn(server, { client: 'actor-1' });
    void takeTickets(() => note(starts, 'other'), { on: other });
    await issue(0);
    await until(async () => (await depth('tickets')) === 0);
    assert.deepEqual(starts.length, 1);
    stopping.abort();
    await Promise.all(consuming);
    await other[Symbol.asyncDispose]();
  });

  it('a running consumer follows an ack wait that another learner has set', async () => {
    const reopenMs = 0; // at each message
    const puller = new Puller(
      learner.link,
      'rollouts',
      silent,
      stopping.signal,
      undefined,
      reopenMs,
    );
    const messages = puller.messages();
    const waits: number[] = [];
    for (const ackWaitMs of [600, 300]) {
      await using next = await brokerOn(server, { ackWaitMs: { rollouts: ackWaitMs } });
      await next.ensureRun(limits);
      const group = rolloutGroup({ ticket: ticket({ ticketId: `t-${ackWaitMs}` }) });
      const sending = { msgId: group.ticket.ticketId, signal: stopping.signal };
      await next.publish(next.names.subjects.rollouts('a'), RolloutGroup, group, sending);
      const { value } = await messages.next();
      waits.push(puller.ackWaitMs);
      await value!.ackAck();
    }
    assert.deepEqual(waits, [600, 300]);
  });

  it('a consumer takes no more tickets than it can work on', async () => {
    const release = gate();
    void takeTickets(() => release.opened);
    for (let order = 0; order < 3; order++) await issue(order);
    const { stream, durable } = learner.names.consumer('tickets.train');
    const info = () => learner.link.jsm.consumers.info(stream, durable);
    await until(async () => (await info()).num_ack_pending === 1);
    assert.equal((await info()).num_pending, 2);
    release.open();
  });

  it('a consumer that shuts down hands back a ticket that it has not started', async () => {
    const shutdown = new AbortController();
    const first = gate();
    const running = takeTickets(
      async () => {
        first.open();
        shutdown.abort();
        await Promise.reject(new Error('interrupted'));
      },
      { signal: shutdown.signal },
    );
    await issue(0);
    await first.opened;
    await running;
    const counts: number[] = [];
    void takeTickets(({ deliveryCount }) => note(counts, deliveryCount));
    await until(() => counts.length > 0);
    assert.equal(await depth('dead'), 0);
  });

  it('a message that cannot succeed is dead-lettered with the reason, the stage and its source', async () => {
    void takeTickets(() =>
      Promise.reject(new PermanentError('unknown problem p-0\nof split train')),
    );
    await issue(0);
    const letter = await firstDeadLetter();
    assert.equal(letter.reason, 'unknown problem p-0 of split train');
    assert.equal(letter.stage, 'actor');
    assert.equal(letter.subject, 'offbeat.test.tickets.train');
    assert.equal(letter.msgId, 't-0-0');
    await until(async () => (await depth('tickets')) === 0);
    assert.equal(await depth('dead'), 1);
  });

  it('a dead letter has the cause in a header if the handler gave one', async () => {
    void takeTickets(() => Promise.reject(notFinite(3)));
    await issue(0);
    const { cause, reason } = await firstDeadLetter();
    assert.deepEqual(cause, { kind: 'not_finite', version: 3 });
    assert.match(reason, /^not finite: policy version 3 /);
  });

  it('a malformed message is dead-lettered without reaching the handler', async () => {
    await using stranger = await brokerOn(server);
    await stranger.link.js.publish('offbeat.test.tickets.train', Uint8Array.of(0xc1), {
      msgID: 'garbage',
    });
    const handled: number[] = [];
    void takeTickets(({ seq }) => note(handled, seq));
    const letter = await firstDeadLetter();
    assert.match(letter.reason, /offbeat\.test\.tickets\.train: not MessagePack \(1 bytes\)/);
    assert.deepEqual([...letter.data], [0xc1]);
    assert.deepEqual(handled, []);
  });

  const manyHeaders = Array.from({ length: 3_000 }, (_, i) => `k${i}:\r\n`).join('');
  for (const [what, text] of [
    ['malformed', 'Offbeat-Body: two\nlines\r\n'],
    ['very many', manyHeaders], // decoding time grows with the square
  ] as const)
    it(`a message with ${what} headers is dead-lettered, and the next one is handled`, async () => {
      const malformed = Buffer.from(`NATS/1.0\r\n${text}\r\n`);
      const fields = Object.assign(headers(), { encode: () => malformed });
      const { connection } = learner.link;
      connection.publish('offbeat.test.tickets.train', Uint8Array.of(1), { headers: fields });
      await connection.flush();
      await issue(0);
      const handled: string[] = [];
      void takeTickets(({ value }) => note(handled, value.ticketId));
      const letter = await firstDeadLetter();
      assert.equal(letter.reason, 'offbeat.test.tickets.train: its headers are malformed');
      assert.deepEqual([...letter.data], [1]);
      await until(async () => (await depth('tickets')) === 0);
      assert.deepEqual(handled, ['t-0']);
    });

  it(
    'a consumer retries a failing message and dead-letters it on the last try',
    { timeout: 20_000 },
    async () => {
      const counts: number[] = [];
      void takeTickets(({ deliveryCount }) => {
        counts.push(deliveryCount);
        return Promise.reject(new Error('the backend is away'));
      });
      await issue(0);
      const letter = await firstDeadLetter();
      assert.deepEqual(counts, [1, 2, 3, 4, 5]);
      assert.equal(letter.reason, 'failed 5 times, last error: the backend is away');
      await until(async () => (await depth('tickets')) === 0);
    },
  );

  it('a message whose consumers all died is dead-lettered, which frees its place', async () => {
    await issue(0);
    const { stream, durable } = learner.names.consumer('tickets.train');
    const consumer = await learner.link.js.consumers.get(stream, durable);
    for (let crash = 0; crash < 5; crash++) {
      (await consumer.next({ expires: 5_000 }))?.nak(); // as a process that dies each time
    }
    const handled: number[] = [];
    void takeTickets(({ seq }) => note(handled, seq));
    const letter = await firstDeadLetter();
    assert.match(
      letter.reason,
      /no consumer settled it: each died or was stopped \(5 deliveries\)/,
    );
    assert.deepEqual(handled, []);
    await until(async () => (await depth('tickets')) === 0);
  });

  it('a kept delivery stays in the stream until it is acknowledged explicitly', async () => {
    const scored = scoredGroup();
    await learner.publish(learner.names.subjects.scored('train'), ScoredGroup, scored, {
      msgId: 's-0',
      signal: stopping.signal,
    });
    const kept: Delivery<ScoredGroup>[] = [];
    const options = { signal: stopping.signal, log: silent, stage: 'learner', concurrency: 2 };
    const take = () =>
      consume(learner, 'scored.train', ScoredGroup, { ...options, settle: 'by-hand' }, (delivery) =>
        note(kept, delivery),
      );
    consuming.push(take());
    await until(() => kept.length === 1);
    assert.equal(await depth('scored'), 1);

    await learner.resetConsumer('scored.train'); // as a learner that starts again
    await until(() => kept.length === 2);
    assert.deepEqual(kept[1]!.value, scored);
    assert.equal(kept[1]!.deliveryCount, 1);
    await kept[1]!.lease.ack();
    assert.equal(await depth('scored'), 0);
  });

  it('a consumer is reset although the server fails to delete its folder', async (t) => {
    const { consumers } = learner.link.jsm;
    const { stream, durable } = learner.names.consumer('scored.train');
    const created = async () => (await consumers.info(stream, durable)).created;
    const first = await created();
    const remove = consumers.delete.bind(consumers);
    const notEmpty = new Error('unlinkat obs/learner-train: directory not empty');
    const deleting = t.mock.method(consumers, 'delete', remove);
    deleting.mock.mockImplementationOnce(async (...of) => {
      await remove(...of);
      throw notEmpty;
    });
    await learner.resetConsumer('scored.train');
    assert.notEqual(await created(), first);
    assert.equal(deleting.mock.callCount(), 2); // the second removes what the first has left

    deleting.mock.mockImplementation(() => Promise.reject(notEmpty));
    await assert.rejects(learner.resetConsumer('scored.train'), notEmpty);
  });

  it(
    'a scored group is dead-lettered for its failures, not for the number of restarted learners',
    { timeout: 20_000 },
    async () => {
      await learner.publish(learner.names.subjects.scored('train'), ScoredGroup, scoredGroup(), {
        msgId: 's-0',
        signal: stopping.signal,
      });
      const { stream, durable } = learner.names.consumer('scored.train');
      const consumer = await learner.link.js.consumers.get(stream, durable);
      for (let life = 0; life < 9; life++) (await consumer.next({ expires: 5_000 }))?.nak();
      const counts: number[] = [];
      const options = { signal: stopping.signal, log: silent, stage: 'learner', concurrency: 1 };
      consuming.push(
        consume(learner, 'scored.train', ScoredGroup, options, ({ deliveryCount }) => {
          counts.push(deliveryCount);
          return Promise.reject(new Error('no use'));
        }),
      );
      const letter = await firstDeadLetter();
      assert.equal(letter.reason, 'failed 5 times, last error: no use');
      assert.deepEqual(counts, [10, 11, 12, 13, 14]);
      await until(async () => (await depth('scored')) === 0);
    },
  );

  it(
    'the failures of a scored group do not count for one that gets its sequence number in a new stream',
    { timeout: 20_000 },
    async () => {
      const publish = (msgId: string) =>
        learner.publish(learner.names.subjects.scored('train'), ScoredGroup, scoredGroup(), {
          msgId,
          signal: stopping.signal,
        });
      await publish('s-0');
      const failed: number[] = [];
      const handled: number[] = [];
      const options = { signal: stopping.signal, log: silent, stage: 'learner', concurrency: 1 };
      consuming.push(
        consume(learner, 'scored.train', ScoredGroup, options, ({ seq }) => {
          if (failed.length === 5) return note(handled, seq);
          failed.push(seq);
          return Promise.reject(new Error('the backend is away'));
        }),
      );
      await until(() => failed.length === 4);
      const { jsm } = learner.link;
      await jsm.streams.delete(learner.names.streams.scored);
      await learner.ensureRun(limits);
      await publish('s-1');
      await until(() => handled.length === 1);
      assert.deepEqual([...failed, ...handled], [1, 1, 1, 1, 1, 1]);
      await until(async () => (await depth('scored')) === 0);
    },
  );

  it('the subject carries the identity of an actor with any name', async () => {
    const subject = learner.names.subjects.rollouts('pod.7 *');
    await learner.publish(subject, RolloutGroup, rolloutGroup(), {
      msgId: 'g-0',
      signal: stopping.signal,
    });
    const seen: string[] = [];
    const options = { signal: stopping.signal, log: silent, stage: 'reward', concurrency: 1 };
    consuming.push(
      consume(learner, 'rollouts', RolloutGroup, options, (delivery) =>
        note(seen, delivery.subject),
      ),
    );
    await until(() => seen.length === 1);
    assert.deepEqual(seen, ['offbeat.test.rollouts.pod=2E7=20=2A']);
  });

  it('a service can store a dead letter itself', async () => {
    const original = {
      subject: 'offbeat.test.scored.train',
      data: Uint8Array.of(1, 2),
      msgId: 'x',
    };
    await learner.deadLetters.store('learner', 'ticket is not outstanding', original);
    const letter = await firstDeadLetter();
    assert.deepEqual(
      { ...letter, data: [...letter.data], seq: 0, at: 0 },
      {
        ...original,
        data: [1, 2],
        stage: 'learner',
        reason: 'ticket is not outstanding',
        cause: { kind: 'other' },
        seq: 0,
        at: 0,
      },
    );
  });

  it('one server keeps two runs apart', async () => {
    await using other = await brokerOn(server, { run: 'second' });
    await other.ensureRun(limits);
    await issue(0, {}, other);
    assert.equal((await other.depths()).tickets, 1);
    assert.equal(await depth('tickets'), 0);
    await other.deleteRun();
    assert.equal((await other.depths()).tickets, 0);
  });

  it('a message with unknown headers is understood', async () => {
    const stranger = await connect({ servers: server.url });
    const fields = headers();
    fields.set('traceparent', '00-1-2-01');
    fields.set('x-unknown', '1');
    const { encode } = await import('../../shared/wire/codec.js');
    await stranger.jetstream().publish('offbeat.test.tickets.train', encode(Ticket, ticket()), {
      headers: fields,
    });
    await stranger.close();
    const seen: [ticketId: string, trace: string | undefined][] = [];
    void takeTickets(({ value, trace }) => note(seen, [value.ticketId, trace]));
    await until(() => seen.length === 1);
    assert.deepEqual(seen, [[ticket().ticketId, '00-1-2-01']]);
  });
});

function note<T>(list: T[], value: T): Promise<void> {
  list.push(value);
  return Promise.resolve();
}
