import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { consume } from '../../shared/broker/consume.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { prepareGround } from '../support/actor-run.js';
import { brokerOn } from '../support/broker.js';
import { limitToPresentBytes } from '../support/byte-limit.js';
import { recordingLog, silent } from '../support/log.js';
import { rolloutGroup } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { firstOrders, ScoringGround } from '../support/scoring-ground.js';
import type { ServiceProcess } from '../support/service-process.js';
import { SmallDisk } from '../support/small-disk.js';
import { TrainingGround } from '../support/training-ground.js';
import { until } from '../support/waiting.js';

const limits = { timeout: 240_000 };
const noRoom = /^NATS has no storage left \(maximum bytes exceeded\); .*max_bytes of the stream/;

/** Waits until a service reports in its log, metrics and readiness that NATS has no space. */
async function saysNoRoom(process: ServiceProcess, queue: string): Promise<void> {
  const { reason } = await process.says(({ failure }) => failure === 'full');
  assert.match(String(reason), noRoom);
  await until(async () => (await process.ask('/readyz')).status === 503);
  assert.match((await process.ask('/readyz')).body, noRoom);
  const blocked = `broker_publish_blocked_seconds_total{queue="${queue}",reason="full"}`;
  await until(async () => (await process.metric(blocked)) > 0);
}

const isReady = async (process: ServiceProcess) => (await process.ask('/readyz')).status === 200;

describe('a stream that has used up its bytes', limits, () => {
  it('an actor waits for a full stream and then delivers every group once', async () => {
    await using ground = await prepareGround();
    await using run = await ground.startRun();
    await run.publish(0);
    await using actor = run.actor('actor-0');
    await until(() => isReady(actor));
    {
      await using _limit = await limitToPresentBytes(run.broker, run.broker.names.streams.rollouts);
      for (let i = 0; i < 20; i++) await run.issue({});
      await saysNoRoom(actor, 'rollouts');
      assert.equal((await run.broker.depths()).tickets, 20);
    }
    await until(() => run.groups.length === 20);
    await until(async () => (await run.broker.depths()).tickets === 0);
    const orders = run.groups.map(({ ticket }) => ticket.order).sort((a, b) => a - b);
    assert.deepEqual(orders, firstOrders(20));
    await until(() => isReady(actor));
  });

  it('a reward service waits for a full stream and then publishes every score once', async () => {
    await using ground = await ScoringGround.prepare();
    await using run = await ground.begin(30_000);
    const [replica] = await run.join('reward-0');
    {
      await using _limit = await limitToPresentBytes(run.broker, run.broker.names.streams.scored);
      await run.sendAll(20);
      await saysNoRoom(replica, 'scored');
      assert.equal((await run.broker.depths()).rollouts, 20);
    }
    await until(() => run.scored.length >= 20);
    await until(async () => (await run.broker.depths()).rollouts === 0);
    assert.deepEqual(run.orders, firstOrders(20));
    await until(() => isReady(replica));
  });

  it('a learner waits for a full stream and then continues normally', async () => {
    await using ground = await TrainingGround.prepare('no-room');
    const { broker } = ground;
    await broker.ensureRun({ trainTickets: 8, evalTickets: 2 }); // so that the limit exists first
    let learner: ServiceProcess;
    {
      await using _limit = await limitToPresentBytes(broker, broker.names.streams.tickets);
      learner = ground.learner({ 'max-steps': 4 });
      await saysNoRoom(learner, 'tickets');
    }
    await ground.startScoring();
    ground.actor('actor-0');
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    assert.equal((await ground.metrics()).length, 4);
    assert.equal((await broker.depths()).dead, 0);
  });
});

describe('a NATS server whose disk is full', limits, () => {
  it('services report a server that stops answering on a full disk; restarted with space, it has lost nothing', async (t) => {
    await using server = await NatsServer.start();
    await server.stop();
    await server.forget();
    using disk = SmallDisk.at(server.storeFolder, 40_000_000);
    if (disk === undefined) {
      t.skip('needs the right to mount a file system');
      return;
    }
    await server.resume();
    const { log, lines } = recordingLog();
    await using broker = await brokerOn(server, { log });
    await broker.ensureRun({ trainTickets: 64, evalTickets: 4 });
    const stopping = new AbortController();
    const { signal } = stopping;
    const send = async (order: number) => {
      const group = rolloutGroup({}, 2_000); // 32 kB
      group.ticket = { ...group.ticket, ticketId: `t-${order}`, order };
      const subject = broker.names.subjects.rollouts('actor-0');
      await broker.publish(subject, RolloutGroup, group, { msgId: `t-${order}`, signal });
    };
    for (let order = 0; order < 10; order++) await send(order);
    disk.fill();
    const sending = Promise.all(Array.from({ length: 10 }, (_, i) => send(10 + i)));
    const unanswered = /connected and does not answer .*check whether its disk is full/;
    await until(() => lines.some(({ reason }) => unanswered.test(String(reason))));
    assert.match(String(broker.trouble), unanswered);

    disk.clear();
    await server.restart('SIGKILL'); // nats-server 2.9.10 ignores every other signal then
    await sending;
    const received: number[] = [];
    const options = { signal, log: silent, stage: 'reward', concurrency: 2 };
    const consuming = consume(broker, 'rollouts', RolloutGroup, options, ({ value }) => {
      received.push(value.ticket.order);
      return Promise.resolve();
    });
    await until(async () => received.length >= 20 && (await broker.depths()).rollouts === 0);
    assert.deepEqual(
      [...new Set(received)].sort((a, b) => a - b),
      firstOrders(20),
    );
    await until(() => broker.trouble === undefined);
    stopping.abort();
    await consuming;
  });
});
