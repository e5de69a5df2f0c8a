import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { connect, headers } from 'nats';
import type { Broker } from '../../shared/broker/broker.js';
import { consume, type Delivery, type Source } from '../../shared/broker/consume.js';
import type { DeadLetter } from '../../shared/broker/dead-letters.js';
import { PermanentError } from '../../shared/base/errors.js';
import { notFinite } from '../../shared/wire/death-cause.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { brokerOn, gate, silent, until } from '../support/broker.js';
import { rolloutGroup, scoredGroup, ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';

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

  it('hands each ticket to exactly one of several actors, and forgets it once acknowledged', async () => {
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

  it('keeps train and eval tickets apart', async () => {
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

  it('knows how many tickets there ever were, those that are done with included', async () => {
    assert.equal(await learner.ticketsSoFar(), 0);
    for (const order of [0, 1, 1, 2]) await issue(order); // one of them twice
    await issue(3, { split: 'eval' });
    void takeTickets(() => Promise.resolve());
    await until(async () => (await depth('tickets')) === 1);
    await learner.clearQueue('tickets.eval');
    assert.equal(await learner.ticketsSoFar(), 4);
  });

  it('tells what waits, how long it has, and how much of it somebody holds', async () => {
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

  it('clears one kind of tickets, those that are being worked on included', async () => {
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

  it('stores a message once when it is published twice with one id', async () => {
    const first = await issue(0);
    const second = await issue(0);
    assert.deepEqual([first.isDuplicate, second.isDuplicate], [false, true]);
    assert.equal(second.seq, first.seq);
    assert.equal(await depth('tickets'), 1);
  });

  it('blocks the publisher while the ticket stream is full, and lets it go on when one is done', async () => {
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

  it('gives up waiting for room when its signal aborts', async () => {
    for (let order = 0; order < 6; order++) await issue(order);
    const seventh = issue(6);
    stopping.abort(new Error('shutting down'));
    await assert.rejects(seventh, /shutting down/);
  });

  it('delivers the ticket of an actor that vanished to another one', async () => {
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

  it('prolongs the lease while a handler runs longer than the ack wait', async () => {
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

  it('takes no more tickets than it can work on', async () => {
    const release = gate();
    void takeTickets(() => release.opened);
    for (let order = 0; order < 3; order++) await issue(order);
    const { stream, durable } = learner.names.consumer('tickets.train');
    const info = () => learner.link.jsm.consumers.info(stream, durable);
    await until(async () => (await info()).num_ack_pending === 1);
    assert.equal((await info()).num_pending, 2);
    release.open();
  });

  it('hands a ticket back at once when it shuts down before working on it', async () => {
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

  it('puts aside what cannot succeed, with the reason, the stage and where it came from', async () => {
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

  it('says in a header why a handler gave a message up, where that has a cause', async () => {
    void takeTickets(() => Promise.reject(notFinite(3)));
    await issue(0);
    const { cause, reason } = await firstDeadLetter();
    assert.deepEqual(cause, { kind: 'not_finite', version: 3 });
    assert.match(reason, /^not finite: policy version 3 /);
  });

  it('puts aside a malformed message without handing it to the handler', async () => {
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

  it('puts aside a message whose headers are none, and goes on with the next', async () => {
    const malformed = Buffer.from('NATS/1.0\r\nOffbeat-Body: two\nlines\r\n\r\n');
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
    'tries a failing message again and puts it aside on the last try',
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

  it('puts aside a message that no consumer lived to settle, freeing its place', async () => {
    await issue(0);
    const { stream, durable } = learner.names.consumer('tickets.train');
    const consumer = await learner.link.js.consumers.get(stream, durable);
    for (let crash = 0; crash < 5; crash++) {
      (await consumer.next({ expires: 5_000 }))?.nak(); // as a process that dies each time
    }
    const handled: number[] = [];
    void takeTickets(({ seq }) => note(handled, seq));
    const letter = await firstDeadLetter();
    assert.match(letter.reason, /every consumer died before settling it \(5 deliveries\)/);
    assert.deepEqual(handled, []);
    await until(async () => (await depth('tickets')) === 0);
  });

  it('leaves a kept delivery in the stream until it is acknowledged by hand', async () => {
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
    await kept[1]!.ack();
    assert.equal(await depth('scored'), 0);
  });

  it(
    'counts of a scored group its failures, not how often learners began anew',
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

  it('carries the identity of an actor in the subject, whatever its name', async () => {
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

  it('stores by hand what a service itself finds dead', async () => {
    const original = {
      subject: 'offbeat.test.scored.train',
      data: Uint8Array.of(1, 2),
      msgId: 'x',
    };
    await learner.deadLetter('learner', 'ticket is not outstanding', original);
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

  it('serves two runs side by side', async () => {
    await using other = await brokerOn(server, { run: 'second' });
    await other.ensureRun(limits);
    await issue(0, {}, other);
    assert.equal((await other.depths()).tickets, 1);
    assert.equal(await depth('tickets'), 0);
    await other.deleteRun();
    assert.equal((await other.depths()).tickets, 0);
  });

  it('understands a message with headers of strangers', async () => {
    const stranger = await connect({ servers: server.url });
    const fields = headers();
    fields.set('traceparent', '00-1-2-01');
    const { encode } = await import('../../shared/wire/codec.js');
    await stranger.jetstream().publish('offbeat.test.tickets.train', encode(Ticket, ticket()), {
      headers: fields,
    });
    await stranger.close();
    const seen: string[] = [];
    void takeTickets(({ value }) => note(seen, value.ticketId));
    await until(() => seen.length === 1);
  });
});

function note<T>(list: T[], value: T): Promise<void> {
  list.push(value);
  return Promise.resolve();
}
