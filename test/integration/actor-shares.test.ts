import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { headers, NatsError } from 'nats';
import { pino } from 'pino';
import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { fullShares } from '../../shared/broker/backlog.js';
import { Sweep } from '../../shared/broker/sweep.js';
import { uploadHeader } from '../../shared/broker/uploads.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { loggerOptions } from '../../shared/service/telemetry/logger.js';
import { ShareWatch } from '../../learner/report/run-watch.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { everybody, GuardedServer } from '../support/guarded-server.js';
import { rolloutGroup, runConfig } from '../support/messages.js';
import { never, until } from '../support/waiting.js';

const run = 'guarded';
const { learner, reward, observer, actor, other } = everybody;
const operator = { role: 'operator' } as const;
const limits = { trainTickets: 8, evalTickets: 8, largestGroupBytes: 4 * 2 ** 20 };
const share = { rollouts: 2 * 16, uploads: 4 * 8, dead: 200 };

/** Two actors; one does everything that its key allows. */
describe('what one actor can store', { timeout: 240_000 }, () => {
  let server: GuardedServer;
  let trains: Broker;
  let scores: Broker;
  let watches: Broker;
  let honest: Broker;
  let hostile: Broker;
  let leads: AsyncDisposable;
  const lines: Record<string, unknown>[] = [];
  const log = pino(loggerOptions(), {
    write: (line: string) => lines.push(JSON.parse(line) as never),
  });

  before(async () => {
    server = await GuardedServer.start([...Object.values(everybody), operator], { run });
    [trains, scores, watches, honest, hostile] = await Promise.all([
      server.connect(learner),
      server.connect(reward, { log }),
      server.connect(observer),
      server.connect(actor),
      server.connect(other),
    ]);
    await trains.ensureRun(limits);
    await new RunConfigStore(trains).put(runConfig({ run }));
    leads = await trains.ledger.lead('learner', never);
  });
  after(async () => {
    await leads[Symbol.asyncDispose]();
    for (const broker of [hostile, honest, watches, scores, trains]) {
      await broker[Symbol.asyncDispose]();
    }
    await server[Symbol.asyncDispose]();
  });
  beforeEach(async () => {
    const { streams } = trains.names;
    for (const stream of [streams.rollouts, streams.uploads]) {
      await trains.link.jsm.streams.purge(stream);
    }
    lines.length = 0;
  });

  const messagesIn = async (stream: string) =>
    (await watches.link.jsm.streams.info(stream)).state.messages;
  let order = 0;
  const large = () => {
    order++; // the server would drop a message id that was sent before as a duplicate
    const group = rolloutGroup({}, 80_000); // over a megabyte
    return { ...group, ticket: { ...group.ticket, ticketId: `t-${order}`, order } };
  };
  const send = (from: Broker, group: RolloutGroup, name = 'actor-0') =>
    from.publish(from.names.subjects.rollouts(name), RolloutGroup, group, {
      msgId: group.ticket.ticketId,
      signal: never,
    });
  /** Sends as fast as the server answers, until it refuses. */
  const flood = async (subject: string, bytes: number, most: number) => {
    const data = new Uint8Array(bytes);
    for (let sent = 0; sent < most; sent++) {
      try {
        await hostile.link.js.publish(subject, data);
      } catch (caught) {
        assert(caught instanceof NatsError);
        return { sent, reason: caught.api_error?.description };
      }
    }
    return { sent: most, reason: undefined };
  };
  /** Consumes groups as a reward service does. */
  const consumeRollouts = (signal: AbortSignal, take: (group: RolloutGroup) => void) => {
    const options = { signal, log, stage: 'reward', concurrency: 4 };
    return consume(scores, 'rollouts', RolloutGroup, options, ({ value }) => {
      take(value);
      return Promise.resolve();
    });
  };
  /** Collects the groups that the reward service receives, up to this number. */
  const scored = async (count: number): Promise<RolloutGroup[]> => {
    const found: RolloutGroup[] = [];
    const stop = new AbortController();
    const consuming = consumeRollouts(stop.signal, (group) => found.push(group));
    await until(async () => found.length >= count && (await watches.depths()).rollouts === 0);
    stop.abort();
    await consuming;
    return found;
  };

  for (const [what, bytes] of [
    ['half a megabyte', 512 * 1024],
    ['one byte', 1],
  ] as const) {
    it(`an actor is limited to its share of uploads, in chunks of ${what}, while another stores a large group`, async () => {
      const uploads = trains.names.subjects.uploads('actor-1');
      const { sent, reason } = await flood(uploads, bytes, 10_000);
      assert.deepEqual([sent, reason], [share.uploads, 'maximum messages per subject exceeded']);

      const group = large();
      await send(honest, group);
      assert.deepEqual(await scored(1), [group]);
      assert.equal(await messagesIn(trains.names.streams.uploads), share.uploads); // its body is gone
    });
  }

  it('an upload chunk may not be larger than an honest one, so uploads are bounded in bytes', async () => {
    const uploads = trains.names.subjects.uploads('actor-1');
    const { sent, reason } = await flood(uploads, 900_000, 10);
    assert.deepEqual([sent, reason], [0, 'message size exceeds maximum allowed']);
    const lease = await flood(`$KV.actors_${run}.actor-1`, 20_000, 10);
    assert.equal(lease.sent, 0);
  });

  it('an actor is limited to its share of the group queue, and another is not delayed', async () => {
    const { sent } = await flood(trains.names.subjects.rollouts('actor-1'), 100, 10_000);
    assert.equal(sent, share.rollouts);
    const { isDuplicate } = await send(honest, rolloutGroup()); // is stored at once
    assert.equal(isDuplicate, false);
    assert.equal(await messagesIn(trains.names.streams.rollouts), share.rollouts + 1);
  });

  it('an actor cannot write to the object store of the trusted roles', async () => {
    for (const subject of [`$O.bodies_${run}.C.x`, `$O.bodies_${run}.M.x`]) {
      await assert.rejects(hostile.link.js.publish(subject, new Uint8Array()), {
        code: 'PERMISSIONS_VIOLATION',
      });
    }
  });

  it('a message that names the upload of another actor is dead-lettered, and that upload stays', async () => {
    const group = large();
    await send(honest, group);
    const { rollouts } = trains.names.streams;
    const message = await trains.link.jsm.streams
      .info(rollouts)
      .then(({ state }) => state.last_seq);
    const { data } = await operatorRead(rollouts, message);
    const fields = headers();
    fields.set(uploadHeader, '1');
    const subject = hostile.names.subjects.rollouts('actor-1');
    await hostile.link.js.publish(subject, data, { headers: fields });
    assert.deepEqual(await scored(1), [group]);
    const letter = await watches.deadLetters.newest(never);
    assert.match(letter!.reason, /names chunk \d+, which another actor uploaded$/);
    assert.equal(letter!.subject, subject);
  });

  /** Reads the queue as an operator, since no service consumes it here. */
  async function operatorRead(stream: string, seq: number) {
    await using reads = await server.connect(operator);
    return await reads.link.jsm.streams.getMessage(stream, { seq });
  }

  it('a flood of dead letters evicts none of other actors, and the letters not kept are counted', async () => {
    const reasons = async () => {
      const found: string[] = [];
      for await (const { reason, subject } of watches.deadLetters.past(never)) {
        found.push(`${subject.split('.').at(-1)!} ${reason}`);
      }
      return found;
    };
    await honest.deadLetters.store('actor', 'genuine', { subject: 'x', data: new Uint8Array([1]) });
    const own = trains.names.subjects.dead('actor', 'actor-1');
    await flood(own, 10, 2 * share.dead);
    assert.equal((await reasons()).filter((line) => line === 'x genuine').length, 1);
    assert.equal((await watches.depths()).dead <= share.dead + 10, true);

    const stop = new AbortController();
    const consuming = consumeRollouts(stop.signal, () => undefined);
    for (let sent = 0; sent < 400;) {
      sent += (await flood(trains.names.subjects.rollouts('actor-1'), 100, 400 - sent)).sent;
    }
    await until(async () => (await watches.depths()).rollouts === 0);
    stop.abort();
    await consuming;
    const garbage = (await reasons()).filter((line) => line.startsWith('actor-1 ')).length;
    assert(garbage >= 100 && garbage < 200, `${garbage} are kept`);
    const given = lines.filter(({ msg }) => /^message given up/.test(String(msg)));
    assert(given.length < 60, `${given.length} lines`); // the first of each kind alone
    assert(given.every(({ subject }) => String(subject).endsWith('.actor-1')));
  });

  it('the refused groups of one actor leave the learner an allowance of dead letters for others', async () => {
    const senders = [...Array<string>(120).fill('actor-1'), 'actor.0'];
    const stop = new AbortController();
    const options = { signal: stop.signal, log, stage: 'learner', concurrency: 1 };
    let refused = 0;
    const consuming = consume(trains, 'scored.train', RolloutGroup, options, async (delivery) => {
      await delivery.dead('refused', delivery.value.actor);
      refused++;
    });
    for (const [order, sender] of senders.entries()) {
      const { ticket } = rolloutGroup();
      const group = { ...rolloutGroup(), ticket: { ...ticket, order }, actor: sender };
      const of = { msgId: `refused-${order}`, signal: never };
      await scores.publish(scores.names.subjects.scored('train'), RolloutGroup, group, of);
    }
    await until(() => refused === senders.length);
    stop.abort();
    await consuming;
    const letters = async (sender: string) => {
      const subject = trains.names.subjects.dead('learner', sender);
      const of = { subjects_filter: subject };
      const { state } = await watches.link.jsm.streams.info(trains.names.streams.dead, of);
      return state.subjects?.[subject] ?? 0;
    };
    const ofLiar = await letters('actor-1');
    assert(ofLiar >= 100 && ofLiar < 120, `${ofLiar} are kept`);
    assert.equal(await letters('actor=2E0'), 1);
  });

  it('an actor over its allowance still reports what the learner acts on: groups too old, and logprobs that are not finite', async () => {
    const original = { subject: 'x', data: new Uint8Array([1]) };
    for (let i = 0; i < 130; i++) await honest.deadLetters.store('actor', 'no more', original);
    for (const cause of [{ kind: 'outdated' }, { kind: 'not_finite', version: 3 }] as const)
      await honest.deadLetters.store('actor', 'acted on', original, `of ${cause.kind}`, cause);
    const reasons: string[] = [];
    for await (const { reason } of watches.deadLetters.past(never)) reasons.push(reason);
    const kept = reasons.filter((reason) => reason === 'no more').length;
    assert(kept < 130, `${kept} are kept`);
    assert.equal(reasons.filter((reason) => reason === 'acted on').length, 2);
  });

  it('actors at their limit are named in the log and the events, and counted in the metrics', async () => {
    await flood(trains.names.subjects.uploads('actor-1'), 10, 10_000);
    const full = { stream: 'uploads', sender: 'actor-1', messages: share.uploads };
    assert.deepEqual(
      (await fullShares(watches.link)).filter(({ stream }) => stream === 'uploads'),
      [full],
    );
    await using watch = new ShareWatch(trains, log);
    await watch.poll();
    await watch.poll();
    const told: unknown[] = [];
    for await (const event of watches.events.past(never)) {
      if (event.kind === 'share' && event.stream === 'uploads') told.push(event.actor);
    }
    assert.deepEqual(told, ['actor-1']); // once
    const line = lines.find(
      ({ msg, stream }) =>
        msg === 'actor has used up its share of a stream' && stream === 'uploads',
    );
    assert.equal(line?.['actor'], 'actor-1');
  });

  it('an upload is swept only when no message can name it any longer', async () => {
    const { streams, subjects } = trains.names;
    await flood(subjects.uploads('actor-1'), 10, 3); // as left by a crash in the middle of an upload
    const now = Date.now();
    await until(() => Date.now() > now + 2); // the server counts by the clock, too
    const group = large();
    await send(honest, group);
    const { state } = await trains.link.jsm.streams.info(streams.uploads);
    const timeOf = async (stream: string, seq: number) =>
      (await operatorRead(stream, seq)).time.getTime();
    const abandoned = await timeOf(streams.uploads, state.first_seq + 2);
    const body = await timeOf(streams.uploads, state.first_seq + 3);
    const rollouts = await trains.link.jsm.streams.info(streams.rollouts);
    const message = await timeOf(streams.rollouts, rollouts.state.first_seq);
    const bodies = state.messages - 3;
    await until(() => leaseIsNewer(trains, streams.rollouts));

    await new Sweep(trains.link, trains.bodies, message - abandoned + 1_000).run();
    assert.equal(await messagesIn(streams.uploads), bodies + 3);
    await new Sweep(trains.link, trains.bodies, message - (abandoned + body) / 2).run();
    assert.equal(await messagesIn(streams.uploads), bodies);
    assert.deepEqual(await scored(1), [group]);
  });
});

describe('what the trusted leave in the object store', { timeout: 120_000 }, () => {
  it('the sweep deletes chunks without an object and bodies of settled scores and deleted letters', async () => {
    await using server = await GuardedServer.start([learner, reward], { run });
    await using trains = await server.connect(learner);
    await using scores = await server.connect(reward);
    await trains.ensureRun(limits);
    await using _leads = await trains.ledger.lead('learner', never);
    const body = new Uint8Array(300_000);
    await scores.bodies.put('train-1.0-a', body);
    await scores.link.js.publish(`$O.bodies_${run}.C.half`, 'chunk');
    await scores.bodies.put('dead-1-a', body);
    const whole = { subject: trains.names.subjects.rollouts('actor-0'), data: new Uint8Array(2e6) };
    await scores.deadLetters.store('reward', 'kept', whole);
    const count = async () =>
      (await trains.link.jsm.streams.info(`OBJ_bodies_${run}`)).state.messages;
    const before = await count();

    await new Sweep(trains.link, trains.bodies, 3_600_000).run();
    assert.equal(await count(), before);
    await until(() => leaseIsNewer(trains, `OBJ_bodies_${run}`));
    await new Sweep(trains.link, trains.bodies, 0).run();
    assert.equal(await count(), Math.ceil(2e6 / (128 * 1024)) + 1); // of the letter
    for await (const letter of trains.deadLetters.past(never)) {
      assert.equal(letter.unreadable, undefined);
    }
  });
});

describe('a run that was begun before actors had shares', { timeout: 60_000 }, () => {
  it('a learner names the remedy if the server still has the permissions of an older release', async () => {
    await using server = await GuardedServer.start([reward], { run });
    await using may = await server.connect(reward); // nor may the learner of an older release
    await assert.rejects(may.ensureRun(limits), {
      name: 'UserError',
      message: /does not allow this key to use stream TICKETS_guarded: .*offbeat nats-config/,
    });
  });

  it('a run from before shares resumes with them and keeps every message', async () => {
    await using server = await GuardedServer.start([learner, observer, operator], { run });
    await using trains = await server.connect(learner);
    const { jsm } = trains.link;
    const { streams } = trains.names;
    const old = { storage: 'file', duplicate_window: 0 } as const;
    const add = (settings: object) => jsm.streams.add({ ...old, ...settings } as never);
    await add({
      ...{ name: streams.rollouts, subjects: [`offbeat.${run}.rollouts.*`], max_msgs: 32 },
      ...{ retention: 'workqueue', discard: 'new', duplicate_window: 3_600_000_000_000 },
    });
    await add({
      ...{ name: streams.dead, subjects: [`offbeat.${run}.dead.*`], max_msgs: 10_000 },
      ...{ retention: 'limits', discard: 'old' },
    });
    await using writes = await server.connect(operator); // the old permissions are gone
    for (let i = 0; i < 2 * share.dead; i++) {
      await writes.link.js.publish(`offbeat.${run}.dead.learner`, 'old');
    }
    await trains.ensureRun(limits);
    await using watches = await server.connect(observer);
    const { dead } = await watches.depths();
    const stages = new Set<string>();
    for await (const { stage } of watches.deadLetters.past(never)) stages.add(stage);
    assert.deepEqual([dead, [...stages]], [2 * share.dead, ['learner']]);
  });
});

/** Whether the leader's lease, which shows the server's time, was renewed after the stream's last message. */
async function leaseIsNewer({ link }: Broker, stream: string): Promise<boolean> {
  const time = async (name: string) =>
    Date.parse((await link.jsm.streams.info(name)).state.last_ts);
  return (await time(`KV_ledger_${run}`)) > (await time(stream));
}
