import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { accountsText } from '../../cli/nats-server/accounts.js';
import { accessWith, identitiesOf, writeKeys } from '../../cli/nats-server/keys.js';
import { accountsBlock } from '../../cli/nats-server/start.js';
import type { z } from 'zod';
import type { Broker } from '../../shared/broker/broker.js';
import { consume, type Delivery } from '../../shared/broker/consume.js';
import { deleteConsumer } from '../../shared/broker/ensure.js';
import type { Identity } from '../../shared/broker/permissions.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { brokerOn } from '../support/broker.js';
import { everybody, GuardedServer } from '../support/guarded-server.js';
import { silent } from '../support/log.js';
import { checkpoint, rolloutGroup, scoredGroup, ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { takeTicketsThroughRestart } from '../support/server-restart.js';
import { gate, never, until } from '../support/waiting.js';

const run = 'guarded';
const { learner, reward, observer, actor, other } = everybody;

/** All subjects that each role may request, with a body that the server can answer with more than an error. */
const questions: readonly { identity: Identity; asks: Readonly<Record<string, string>> }[] = [
  {
    identity: actor,
    asks: {
      [`offbeat.${run}.rollouts.actor-0`]: 'anything',
      [`offbeat.${run}.uploads.actor-0`]: 'anything',
      [`offbeat.${run}.dead.actor.actor-0`]: 'anything',
      [`$KV.actors_${run}.actor-0`]: 'anything',
      '$JS.API.INFO': '',
      [`$JS.API.STREAM.INFO.KV_policy_${run}`]: '',
      [`$JS.API.STREAM.MSG.GET.KV_policy_${run}`]: `{"last_by_subj":"$KV.policy_${run}.current"}`,
      [`$JS.API.CONSUMER.INFO.TICKETS_${run}.actors-eval`]: '',
      [`$JS.API.CONSUMER.MSG.NEXT.TICKETS_${run}.actors-eval`]: '{"batch":1,"expires":1000000000}',
      [`$JS.ACK.TICKETS_${run}.actors-eval.1.1.1.1.0`]: '+WPI',
    },
  },
  {
    identity: reward,
    asks: {
      [`$O.bodies_${run}.C.x`]: 'anything',
      '$JS.API.INFO': '',
      [`$JS.API.STREAM.PURGE.OBJ_bodies_${run}`]: '{"filter":"none"}',
      [`$JS.API.STREAM.MSG.GET.KV_config_${run}`]: '{"seq":1}',
      [`$JS.API.CONSUMER.MSG.NEXT.ROLLOUTS_${run}.reward`]: '{"batch":1,"expires":1000000000}',
      [`$JS.ACK.ROLLOUTS_${run}.reward.1.1.1.1.0`]: '+WPI',
    },
  },
  {
    identity: observer,
    asks: {
      '$JS.API.INFO': '',
      [`$JS.API.STREAM.INFO.KV_ledger_${run}`]: '',
      [`$JS.API.STREAM.MSG.GET.KV_ledger_${run}`]: '{"seq":1}',
      [`$JS.API.CONSUMER.INFO.SCORED_${run}.learner-train`]: '',
    },
  },
];

/** Subjects to which none of these roles may publish, so none may have an answer sent there. */
const victims = [
  `$KV.ledger_${run}.checkpoint`,
  `$KV.policy_${run}.current`,
  `$KV.config_${run}.run`,
  `$KV.actors_${run}.actor-1`,
  `$O.weights_${run}.C.x`,
  `offbeat.${run}.tickets.train`,
  `offbeat.${run}.rollouts.actor-1`,
  `offbeat.${run}.uploads.actor-1`,
  `offbeat.${run}.events.step`,
  `offbeat.${run}.dead.learner.train`,
  `offbeat.${run}.policy`,
  `$JS.API.STREAM.DELETE.SCORED_${run}`,
  `$JS.API.CONSUMER.DELETE.TICKETS_${run}.actors-train`,
  '_INBOX.learner.answer',
  '_INBOX.actor.actor-1.answer',
];

describe(
  'answers of NATS to a reply subject that the requester chooses',
  { timeout: 120_000 },
  () => {
    let server: GuardedServer;
    let trains: Broker;
    let watches: Broker;
    before(async () => {
      server = await GuardedServer.start(Object.values(everybody), { run });
      trains = await server.connect(learner);
      watches = await server.connect(observer);
      await trains.ensureRun({ trainTickets: 8, evalTickets: 32 });
      for (let order = 0; order <= victims.length; order++) {
        const one = ticket({ ticketId: `e-${order}`, order, split: 'eval' });
        await trains.publish(`offbeat.${run}.tickets.eval`, Ticket, one, sent(`e-${order}`));
      }
      await using _leads = await trains.ledger.lead('learner', never); // writes nothing once it is released
      await trains.ledger.write(checkpoint());
      const samplerPath = 'tinker://m/v0';
      await trains.policy.publish({ version: 0, samplerPath, smallestUsefulVersion: 0 });
    });
    after(async () => {
      await trains[Symbol.asyncDispose]();
      await watches[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    });

    for (const { identity, asks } of questions) {
      it(`an answer reaches only the requesting ${identity.role}, even if it names a foreign reply subject`, async () => {
        await using asker = await server.connect(identity);
        const overheard: string[] = [];
        await using second = await server.connect(other);
        const ears = [
          trains.link.connection.subscribe('_INBOX.learner.answer'),
          trains.link.connection.subscribe(`offbeat.${run}.dead.>`),
          second.link.connection.subscribe('_INBOX.actor.actor-1.answer'),
          second.link.connection.subscribe(`offbeat.${run}.policy`),
        ];
        const own = `offbeat.${run}.dead.actor.actor-0`; // the actor's own messages are received, and are no answers
        for (const ear of ears) {
          void (async () => {
            for await (const { subject } of ear) if (subject !== own) overheard.push(subject);
          })();
        }
        await trains.link.connection.flush();
        await second.link.connection.flush();
        const before = await othersIn(watches, Object.keys(asks));

        for (const [subject, body] of Object.entries(asks)) {
          for (const reply of victims) asker.link.connection.publish(subject, body, { reply });
          // This request gets an answer, and all earlier ones have theirs by then. A message of a queue
          // comes under its own subject, so the client knows the answer by its inbox alone.
          await asker.link.connection.request(subject, body, { timeout: 10_000, noMux: true });
        }

        await trains.link.connection.flush();
        await second.link.connection.flush();
        assert.deepEqual(await othersIn(watches, Object.keys(asks)), before);
        assert.deepEqual(overheard, []);
        assert.equal((await trains.ledger.read())?.version, checkpoint().version);
        assert.equal((await second.policy.current())?.version, 0);
        for (const ear of ears) ear.unsubscribe();
      });
    }

    it('a foreign reply subject settles no message that another client holds', async () => {
      await using scores = await server.connect(reward);
      await scores.publish(`offbeat.${run}.scored.train`, ScoredGroup, scoredGroup(), sent('held'));
      const held = gate();
      const stop = new AbortController();
      const options = { signal: stop.signal, log: silent, stage: 'learner', concurrency: 1 };
      let delivery: Delivery<ScoredGroup> | undefined;
      const taking = consume(trains, 'scored.train', ScoredGroup, options, async (given) => {
        delivery = given;
        await held.opened;
      });
      await until(() => delivery !== undefined);

      const { asks, identity } = questions[0]!;
      await using asker = await server.connect(identity);
      const reply = `$JS.ACK.SCORED_${run}.learner-train.1.${delivery!.seq}.1.1.0`;
      for (const [subject, body] of Object.entries(asks)) {
        const refused = (async () => {
          for await (const { data } of asker.link.connection.status()) return data;
          return undefined;
        })();
        asker.link.connection.publish(subject, body, { reply });
        assert.equal(await refused, 'PERMISSIONS_VIOLATION', subject);
      }
      assert.equal((await watches.backlog()).consumers['scored.train'].ackPending, 1);
      held.open();
      await until(async () => (await watches.depths()).scored === 0);
      stop.abort();
      await taking;
    });

    it('the learner removes a ticket that an actor had sent into its rollout queue', async () => {
      await using asker = await server.connect(actor);
      const { stream } = trains.names.consumer('rollouts');
      const strangers = async () => {
        const { state } = await trains.link.jsm.streams.info(stream, { subjects_filter: '>' });
        return state.subjects?.[trains.names.subjects.tickets('eval')] ?? 0;
      };
      const next = `$JS.API.CONSUMER.MSG.NEXT.TICKETS_${run}.actors-eval`;
      const reply = trains.names.subjects.rollouts('actor-0');
      await trains.publish(
        `offbeat.${run}.tickets.eval`,
        Ticket,
        ticket({ split: 'eval' }),
        sent('x'),
      );
      asker.link.connection.publish(next, '{"batch":1,"no_wait":true}', { reply });
      await until(async () => (await strangers()) > 0);
      await until(async () => (await strangers()) === 0);
    });

    it('the run continues after the attack: tickets are taken, groups sent and scores accepted', async () => {
      await using samples = await server.connect(other);
      await using scores = await server.connect(reward);
      const { subjects } = trains.names;
      await trains.publish(subjects.tickets('train'), Ticket, ticket(), sent('t'));
      await take(samples, 'tickets.train', Ticket, () => true);
      const group = rolloutGroup({ actor: 'actor-1' });
      await samples.publish(subjects.rollouts('actor-1'), RolloutGroup, group, sent('r'));
      await take(scores, 'rollouts', RolloutGroup, ({ actor: by }) => by === 'actor-1');
      const scored = scoredGroup({ group });
      await scores.publish(subjects.scored('train'), ScoredGroup, scored, sent('s'));
      await take(trains, 'scored.train', ScoredGroup, (value) => value.group.actor === 'actor-1');
    });
  },
);

describe('an actor in its own account', { timeout: 240_000 }, () => {
  let folder: string;
  let server: NatsServer;
  let trains: Broker;
  let samples: Broker;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-keys-'));
    const users = await writeKeys(folder, 'test', identitiesOf(['actor-0']));
    server = await NatsServer.start({ configuration: accountsBlock(accountsText('test', users)) });
    const as = (identity: Identity, over = {}) =>
      brokerOn(server, { identity, ...accessWith(folder, identity), ...over });
    trains = await as(learner, { ackWaitMs: { 'tickets.train': 1_000 } });
    samples = await as(actor);
    await trains.ensureRun({ trainTickets: 64, evalTickets: 4 });
  });
  after(async () => {
    await trains[Symbol.asyncDispose]();
    await samples[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  it('an actor in its own account continues after a kill of the server and loses nothing', async () => {
    await takeTicketsThroughRestart(server, { learner: trains, actor: samples }, 'SIGKILL');
  });

  it('an actor gives up a message whose consumer is gone, although the server does not report it', async () => {
    const subject = trains.names.subjects.tickets('train');
    await trains.publish(subject, Ticket, ticket(), sent('last'));
    const stop = new AbortController();
    const options = { signal: stop.signal, log: silent, stage: 'actor', concurrency: 1 };
    const ended = gate();
    let failure: unknown;
    const consuming = consume(samples, 'tickets.train', Ticket, options, async (delivery) => {
      const { stream, durable } = trains.names.consumer('tickets.train');
      try {
        await deleteConsumer(trains.link, stream, durable);
        await delivery.lease.ack();
      } catch (caught) {
        failure = caught;
      } finally {
        ended.open();
      }
    });
    await ended.opened;
    assert.match(
      String(failure),
      /cannot settle message \d+ of TICKETS_test: its consumer is gone/,
    );
    stop.abort();
    await consuming;
  });
});

function sent(msgId: string) {
  return { msgId, signal: never };
}

/** The messages of each stream outside the `own` subjects: the newest number and the count. */
async function othersIn({ link }: Broker, own: readonly string[]): Promise<unknown> {
  const { streams, buckets, objects } = link.names;
  const all = [
    ...Object.values(streams),
    ...Object.values(buckets).map((bucket) => `KV_${bucket}`),
    ...Object.values(objects).map((bucket) => `OBJ_${bucket}`),
  ];
  const found = new Map<string, unknown>();
  for (const stream of all) {
    const { state, config } = await link.jsm.streams.info(stream, { subjects_filter: '>' });
    const subjects = Object.entries(state.subjects ?? {}).filter(([name]) => !own.includes(name));
    const isShared = own.some((name) => config.subjects.some((each) => covers(each, name)));
    found.set(stream, [subjects.sort(), ...(isShared ? [] : [state.messages, state.last_seq])]);
  }
  return found;
}

/** A subject that matches a stream's, whose only wildcard is at the end. */
function covers(pattern: string, subject: string): boolean {
  return subject.startsWith(pattern.replace(/[*>]$/, ''));
}

/** Consumes messages of a queue, dead-lettering unreadable ones, until the expected one arrives. */
async function take<S extends z.ZodType>(
  broker: Broker,
  source: 'tickets.train' | 'rollouts' | 'scored.train',
  schema: S,
  isMeant: (value: z.output<S>) => boolean,
): Promise<void> {
  const stop = new AbortController();
  const stage = { 'tickets.train': 'actor', rollouts: 'reward', 'scored.train': 'learner' }[source];
  const options = { signal: stop.signal, log: silent, stage, concurrency: 1 };
  await consume(broker, source, schema, options, ({ value }) => {
    if (isMeant(value)) stop.abort();
    return Promise.resolve();
  });
}
