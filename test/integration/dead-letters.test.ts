import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { encode as pack } from '@msgpack/msgpack';
import { headers } from 'nats';
import { loadRequest, replay } from '../../cli/dead-letters/command.js';
import type { Broker } from '../../shared/broker/broker.js';
import { watchDeadLetters } from '../../shared/broker/dead-letter-watch.js';
import { type DeadLetter, DeadLetters } from '../../shared/broker/dead-letters.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { encode } from '../../shared/wire/codec.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { brokerOn } from '../support/broker.js';
import { checkpoint, rolloutGroup, runConfig, ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { runOffbeat } from '../support/offbeat.js';
import { until } from '../support/waiting.js';

/** Tickets 0 to 9 and 12 have an outcome. */
const books = { nextOrder: 20, consumedBelow: 10, consumedAbove: [12] };

/** The broker, whose lead is taken only after `before`. */
function leaderOf(broker: Broker, before: () => Promise<void>): Broker {
  const lead: Broker['ledger']['lead'] = async (...args) => {
    await before();
    return broker.ledger.lead(...args);
  };
  const withOwn = <T extends object>(target: T, own: Partial<T>): T =>
    new Proxy(target, {
      get(_, key) {
        const value: unknown = Reflect.get(key in own ? own : target, key);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
  return withOwn(broker, { ledger: withOwn(broker.ledger, { lead }) });
}

describe('offbeat dead-letters, on a real server', { timeout: 480_000 }, () => {
  let server: NatsServer;
  let broker: Broker;

  before(async () => {
    server = await NatsServer.start({ maxPayload: 65_536 });
  });
  after(() => server[Symbol.asyncDispose]());
  beforeEach(async () => {
    broker = await brokerOn(server);
    await broker.ensureRun({ trainTickets: 8, evalTickets: 8 });
    await broker.ledger.write(checkpoint(books));
  });
  afterEach(async () => {
    await broker.deleteRun();
    await broker[Symbol.asyncDispose]();
  });

  const run = (...words: string[]) =>
    runOffbeat(['dead-letters', ...words, '--run=test', `--nats-url=${server.url}`], '.');
  const answer = async (...words: string[]) => {
    const { out, err, code } = await run(...words, '--json');
    assert(code !== 2, err);
    return JSON.parse(out) as Record<string, unknown>[];
  };
  /** The numbers of the letters that are left, without a process that lists them. */
  const numbers = async () => {
    const left: number[] = [];
    const { deadLetters } = broker;
    for await (const { seq } of deadLetters.past(AbortSignal.timeout(10_000))) left.push(seq);
    return left;
  };

  /** The group of a training ticket dies in the reward service. */
  const bury = (order: number, length = 3) => {
    const named = ticket({ ticketId: `train-0000000${order}`, order });
    const data = encode(RolloutGroup, rolloutGroup({ ticket: named }, length));
    const subject = broker.names.subjects.rollouts('actor-0');
    return broker.deadLetters.store('reward', 'no such problem', {
      subject,
      data,
      msgId: `m-${order}`,
    });
  };
  const buryNonsense = () => {
    const original = { subject: broker.names.subjects.tickets('eval'), data: Buffer.from('\xc1') };
    return broker.deadLetters.store('actor', 'not MessagePack', original);
  };

  it('a message of the largest size is set aside, however long the texts that describe it are', async () => {
    const long = '题'.repeat(2_000);
    const original = {
      subject: broker.names.subjects.rollouts('actor-0'),
      data: new Uint8Array(65_536 - 4_096),
      ...{ msgId: long, trace: long },
    };
    await broker.deadLetters.store('reward', long, original);
    const [letter] = await answer('list');
    assert.match(String(letter!['reason']), /^题{200}$/);
  });

  /** As any actor may publish it. */
  const forge = (fields: Readonly<Record<string, string>>, data: Uint8Array = new Uint8Array()) => {
    const of = headers();
    for (const [name, value] of Object.entries(fields)) of.set(name, value);
    return broker.link.js.publish(broker.names.subjects.dead('actor', 'actor-0'), data, {
      headers: of,
    });
  };
  /** The entry of an object without chunks. */
  const forgeObject = async (name: string, entry: object) => {
    const key = Buffer.from(name).toString('base64');
    const info = { nuid: 'n', chunks: 0, digest: 'SHA-256=none', ...entry };
    await broker.link.js.publish(`$O.bodies_test.M.${key}`, JSON.stringify(info));
  };

  it('dead-letters lists each letter with its ticket and the outcome of the ticket', async () => {
    await bury(3);
    await bury(11);
    await buryNonsense();
    const rows = (await answer('list')).map((row) => [
      row['ticketId'],
      row['ticket'],
      row['stage'],
    ]);
    assert.deepEqual(rows, [
      ['train-00000003', 'ended', 'reward'],
      ['train-000000011', 'open', 'reward'],
      [null, 'none', 'actor'],
    ]);
    const { out } = await run('list');
    assert.match(out, /^1 +20\S+Z +reward +train-00000003 \(ended\) +no such problem$/m);
  });

  it('dead-letters shows a whole letter, also if its body is in the object store', async () => {
    await bury(3, 20_000);
    const { out } = await run('show', '1');
    const shown = JSON.parse(out) as { msgId: string; message: RolloutGroup; bytes: number };
    assert.deepEqual([shown.msgId, shown.message.ticket.order], ['m-3', 3]);
    assert(shown.bytes > 65_536);
    await buryNonsense();
    assert.match((await run('show', '2')).out, /"unreadable"[^]*"base64"/);
  });

  it('a dead letter keeps the beginning of its body at once while the object store is full', async () => {
    const { jsm } = broker.link;
    const bucket = `OBJ_${broker.names.objects.bodies}`;
    await jsm.streams.update(bucket, { max_msgs: 1 });
    await bury(3, 20_000);
    assert.equal((await jsm.streams.info(bucket)).state.messages, 0, 'no chunk is left behind');
    const letters: DeadLetter[] = [];
    for await (const letter of broker.deadLetters.past(AbortSignal.timeout(10_000))) {
      letters.push(letter);
    }
    assert.equal(letters.length, 1);
    assert(letters[0]!.data.byteLength > 30_000 && letters[0]!.data.byteLength < 65_536);
    assert.notEqual(letters[0]!.unreadable, undefined);
    assert.equal(letters[0]!.reason, 'no such problem');
  });

  it('dead-letters reads the cause from the header and treats every other letter as of unknown cause', async () => {
    const original = { subject: broker.names.subjects.tickets('train'), data: new Uint8Array() };
    const causes = [{ kind: 'outdated' }, { kind: 'not_finite', version: 12 }] as const;
    for (const cause of causes) {
      await broker.deadLetters.store('actor', 'for people', original, undefined, cause);
    }
    await forge({ 'Offbeat-Reason': 'outdated: a letter from before there was the header' });
    await forge({ 'Offbeat-Cause': 'from a newer program' });
    await forge({ 'Offbeat-Cause': 'not_finite' }); // of no version
    await forge({ 'Offbeat-Cause': 'not_finite', 'Offbeat-Cause-Version': '-1' });
    const found: unknown[] = [];
    for await (const { cause } of broker.deadLetters.past(AbortSignal.timeout(10_000))) {
      found.push(cause);
    }
    assert.deepEqual(found, [...causes, ...Array<unknown>(4).fill({ kind: 'other' })]);
  });

  it('dead-letters replays a message that the next learner waits for and deletes its letter', async () => {
    await bury(11);
    const { code, out } = await run('replay', '1');
    assert.equal(code, 0);
    assert.equal(out, '1: published again on offbeat.test.rollouts.actor-0\n');
    assert.equal((await broker.depths()).rollouts, 1);
    assert.deepEqual(await numbers(), []);
  });

  it('dead-letters replays a message that no learner waits for only with --force', async () => {
    await bury(3);
    await bury(12);
    const refused = await run('replay', '--all');
    assert.equal(refused.code, 1);
    assert.match(
      refused.out,
      /^1: left unchanged: its ticket has ended, so no learner waits for it/,
    );
    assert.equal((await broker.depths()).rollouts, 0);
    assert.equal((await run('replay', '2', '--force')).code, 0);
    assert.equal((await broker.depths()).rollouts, 1);
    assert.deepEqual(await numbers(), [1]);
  });

  it('dead-letters replays nothing while a learner trains, since it has already replaced the tickets', async () => {
    await bury(11);
    await using _leadership = await broker.ledger.lead('learner', AbortSignal.timeout(10_000));
    const { code, err } = await run('replay', '1');
    assert.equal(code, 2);
    assert.match(err, /a learner trains run test .*; stop it before a replay/);
    assert.deepEqual(await numbers(), [1]);
  });

  it('dead-letters replays nothing for a ticket that the learner before ended just before it gave up the lead', async () => {
    await bury(11);
    const leader = leaderOf(broker, () =>
      broker.ledger.write(checkpoint({ ...books, consumedBelow: 15, consumedAbove: [] })),
    );
    const request = loadRequest(['replay', '1', '--run=test'], {});
    const [outcome] = await replay(leader, request, AbortSignal.timeout(10_000));
    assert.match(outcome!.why, /^its ticket has ended, so no learner waits for it/);
    assert.equal((await broker.depths()).rollouts, 0);
    assert.deepEqual(await numbers(), [1]);
  });

  it('dead-letters replays only to the queue that the stage of the letter consumes', async () => {
    const data = encode(Ticket, ticket());
    const scored = broker.names.subjects.scored('train');
    await forge({ 'Offbeat-Subject': '$KV.config_test.run' }, data);
    await forge({ 'Offbeat-Subject': scored, 'Offbeat-Stage': 'learner' }, data);
    await forge({ 'Offbeat-Subject': broker.names.subjects.tickets('eval') }, data);
    await forge({ 'Offbeat-Subject': broker.names.subjects.tickets('train'), 'Offbeat-Body': 'x' });
    const { code, out } = await run('replay', '--all', '--force');
    assert.equal(code, 1);
    assert.deepEqual(out.split('\n'), [
      '1: left unchanged: its subject is "$KV.config_test.run", and stage actor takes no messages from there; purge it',
      '2: left unchanged: its subject is "offbeat.test.scored.train", and stage actor takes no messages from there; purge it',
      '3: published again on offbeat.test.tickets.eval',
      '4: left unchanged: its body cannot be fully read (its body x is missing); purge it',
      '',
    ]);
    assert.deepEqual(await broker.depths(), { tickets: 1, rollouts: 0, scored: 0, dead: 3 });
    assert.equal(await new RunConfigStore(broker).isWritten(), false);
    const letter = (await broker.deadLetters.past(AbortSignal.timeout(10_000)).next()).value!;
    await assert.rejects(broker.deadLetters.replay(letter, AbortSignal.timeout(10_000)), {
      name: 'UserError',
      message:
        /^dead letter 1 cannot be replayed: its subject is "\$KV\.config_test\.run", .*purge it$/,
    });
    assert.equal((await run('purge', '1', '2', '4')).code, 0);
  });

  it('dead-letters keeps a letter that the next learner must still read and deletes the others', async () => {
    await bury(3);
    await bury(11);
    await buryNonsense();
    const { code, out } = await run('purge', '--all');
    assert.equal(code, 1);
    assert.match(out, /^2: left unchanged: its ticket is still open in the last checkpoint/m);
    assert.deepEqual(await numbers(), [2]);
    await broker.ledger.write(checkpoint({ ...books, consumedBelow: 15, consumedAbove: [] }));
    assert.equal((await run('purge', '2')).code, 0);
    assert.deepEqual(await numbers(), []);
  });

  it('dead-letters deletes letters about tickets that no learner can have issued', async () => {
    for (const [ticketId, attempt] of [
      ['train-00000020', 0],
      ['train-999999999999999', 0],
      ['train-00000011', 2],
      ['train-00000019', 1],
    ] as const) {
      await forge({}, encode(Ticket, ticket({ ticketId, attempt, order: 19 })));
    }
    const fates = (await answer('list')).map(({ ticket: fate }) => fate);
    assert.deepEqual(fates, ['none', 'none', 'none', 'open']);
    assert.equal((await run('purge', '--all')).code, 1);
    assert.deepEqual(await numbers(), [4]);
  });

  it('dead-letters keeps letters about tickets that a learner can have issued since its checkpoint', async () => {
    await new RunConfigStore(broker).put(runConfig({ maxStepsOffPolicy: 1, groupsPerBatch: 2 }));
    const options = { msgId: 't-0', signal: AbortSignal.timeout(10_000) };
    await broker.publish(broker.names.subjects.tickets('train'), Ticket, ticket(), options);
    for (const order of [24, 25]) {
      await forge({}, encode(Ticket, ticket({ ticketId: `train-000000${order}` })));
    }
    const fates = (await answer('list')).map(({ ticket: fate }) => fate);
    assert.deepEqual(fates, ['open', 'none']); // 20 by the checkpoint, 1 in the stream, 4 by the capacity law
  });

  it('dead-letters prints text of senders without escape codes and extra lines', async () => {
    const hostile = '\x1b]0;owned\x07\x9b2J\u202e';
    const fields = { 'Offbeat-Reason': hostile, 'Offbeat-Subject': hostile };
    await forge(fields, pack({ ticketId: `${hostile}\n7`, attempt: 0 }));
    for (const words of [['list'], ['list', '--json'], ['show', '1'], ['replay', '1']]) {
      const { out } = await run(...words);
      assert.match(out, /\\u001b\]0;owned\\u0007\\u009b2J\\u202e/, words.join(' '));
      assert.doesNotMatch(out.replaceAll('\n', ''), /[\p{Cc}\p{Cf}]/u);
    }
    assert.equal((await run('list')).out.trimEnd().split('\n').length, 1);
    const [row] = await answer('list');
    assert.deepEqual([row?.['reason'], row?.['ticketId']], [hostile, `${hostile}\n7`]);
  });

  describe('a dead letter of which a part cannot be read', () => {
    const own = encode(Ticket, ticket({ ticketId: 'train-00000003', order: 3 }));

    beforeEach(async () => {
      await forgeObject('oversized', { size: 2 ** 40 });
      await forgeObject('damaged', { size: 0 });
      await forgeObject('forged', { size: -1, nuid: '>' });
      for (const name of ['oversized', 'damaged', 'forged', 'none', 'x'.repeat(10_000)]) {
        await forge({ 'Offbeat-Body': name }, own);
      }
      const malformed = Buffer.from('NATS/1.0\r\nOffbeat-Reason: two\nlines\r\n\r\n');
      const fields = Object.assign(headers(), { encode: () => malformed });
      broker.link.connection.publish(broker.names.subjects.dead('actor', 'actor-0'), own, {
        headers: fields,
      });
      await broker.link.connection.flush();
      await bury(4);
    });

    it('a reader that waits for letters goes on after one with malformed headers', async () => {
      const stopping = new AbortController();
      const read: (string | undefined)[] = []; // why each is unreadable
      const reading = (async () => {
        for await (const { unreadable } of broker.deadLetters.read(stopping.signal)) {
          read.push(unreadable);
        }
      })();
      const before = (await answer('list')).length;
      await until(() => read.length === before);
      const events: string[] = []; // of the connection
      void (async () => {
        for await (const { type } of broker.link.connection.status()) events.push(type);
      })();
      const malformed = Buffer.from('NATS/1.0\r\nOffbeat-Reason: two\nlines\r\n\r\n');
      const lines = Array.from({ length: 3_000 }, (_, i) => `k${i}:\r\n`).join('');
      const many = Buffer.from(`NATS/1.0\r\n${lines}\r\n`); // decoding time grows with the square
      const subject = broker.names.subjects.dead('actor', 'actor-0');
      for (const bytes of [malformed, many]) {
        const fields = Object.assign(headers(), { encode: () => bytes });
        broker.link.connection.publish(subject, new Uint8Array(), { headers: fields });
      }
      await bury(5);
      await until(() => read.length === before + 3);
      const why = 'its headers are malformed';
      assert.deepEqual(read.slice(before), [why, why, undefined]);
      assert.deepEqual(events, [], 'the client stopped reading, and connected again');
      stopping.abort();
      await reading;
    });

    it('dead-letters lists and shows the readable parts of damaged letters and names the missing ones', async () => {
      const rows = await answer('list');
      assert.deepEqual(
        rows.map(({ ticketId }) => ticketId),
        [...Array<string>(6).fill('train-00000003'), 'train-00000004'],
      );
      const expected = [
        /^object oversized of bodies_test has 1099511627776 bytes; at most/,
        /^object damaged of bodies_test is damaged/,
        /^its body forged is missing$/,
        /^its body none is missing$/,
        /^its body x{100} is missing$/,
        /^its headers are malformed$/,
        /^null$/,
      ];
      for (const [i, pattern] of expected.entries())
        assert.match(String(rows[i]!['unreadable']), pattern);
      const { out } = await run('list');
      assert.match(out, /^4 .* \(unreadable: its body none is missing\)$/m);
      assert.match((await run('show', '2')).out, /"unreadable": "object damaged of/);
    });

    it('the next learner reads the tickets in damaged letters and those after them', async () => {
      const stop = new AbortController();
      const deaths: string[] = [];
      await watchDeadLetters(broker.deadLetters.read(stop.signal), ({ ticketId }) => {
        if (deaths.push(ticketId) === 7) stop.abort();
      });
      assert.equal(deaths.at(-1), 'train-00000004');
    });

    it('dead-letters deletes damaged letters', async () => {
      const { code, err } = await run('purge', '--all');
      assert.deepEqual([code, err], [0, '']);
      assert.deepEqual(await numbers(), []);
    });

    it('dead-letters does not mistake a connection failure for a damaged body', async () => {
      const gone = await brokerOn(server);
      const letters = new DeadLetters(broker.link, gone);
      await gone.link.connection.close();
      const reading = letters.past(AbortSignal.timeout(10_000)).next();
      await assert.rejects(reading, { code: 'CONNECTION_CLOSED' });
    });
  });

  it('dead-letters names a missing letter', async () => {
    assert.match((await run('show', '7')).err, /run test has no dead letter 7; .*list/);
    const unknown = await run('purge', '7', '0', '999999999999999999999');
    assert.match(unknown.err, /run test has no dead letter 0, 7, 1e\+21; .*list/);
    const elsewhere = ['dead-letters', 'list', '--run=none', `--nats-url=${server.url}`];
    const { code, err } = await runOffbeat(elsewhere, '.');
    assert.deepEqual([code, err], [2, 'the NATS server knows no run none\n']);
    assert.match(
      (await run('purge')).err,
      /purge which\? Give the numbers that list shows, or --all/,
    );
    assert.match((await run('bury')).err, /unknown action bury; one of list, show, replay, purge/);
  });
});
