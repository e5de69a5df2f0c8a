import assert from 'node:assert/strict';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Broker } from '../../shared/broker/broker.js';
import { consume, type Source } from '../../shared/broker/consume.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import type { z } from 'zod';
import { everybody, GuardedServer } from '../support/guarded-server.js';
import { silent } from '../support/log.js';
import {
  actorLease,
  checkpoint,
  rolloutGroup,
  runConfig,
  scoredGroup,
  ticket,
} from '../support/messages.js';
import { never, until } from '../support/waiting.js';

const run = 'guarded';
const { learner, reward, observer, actor } = everybody;

/** Forbidden subjects of each role: to publish or request, and to subscribe. */
const forbidden = [
  {
    identity: actor,
    deeds: {
      'publish scores': [`offbeat.${run}.scored.train`, `offbeat.${run}.scored.eval`],
      'issue tickets': [`offbeat.${run}.tickets.train`, `offbeat.${run}.tickets.eval`],
      "publish another actor's rollouts": [
        `offbeat.${run}.rollouts.actor-1`,
        `offbeat.${run}.rollouts.actor-0.more`,
      ],
      'upload for another actor, or store among what the trusted do': [
        `offbeat.${run}.uploads.actor-1`,
        `offbeat.${run}.uploads.actor-0.more`,
        `$O.bodies_${run}.C.x`,
        `$O.bodies_${run}.M.x`,
      ],
      "renew another actor's lease": [`$KV.actors_${run}.actor-1`],
      'publish manifests or weights': [
        `$KV.policy_${run}.current`,
        `$O.weights_${run}.C.x`,
        `$O.weights_${run}.M.x`,
        `offbeat.${run}.policy`,
      ],
      'write events, or dead letters of other stages': [
        `offbeat.${run}.events.step`,
        `offbeat.${run}.dead.learner.train`,
        `offbeat.${run}.dead.reward.actor-0`,
        `offbeat.${run}.dead.actor`,
        `offbeat.${run}.dead.actor.actor-1`,
      ],
      'write the ledger or the configuration': [
        `$KV.ledger_${run}.checkpoint`,
        `$KV.ledger_${run}.leader`,
        `$KV.config_${run}.run`,
      ],
      'read the ledger': [
        `$JS.API.STREAM.MSG.GET.KV_ledger_${run}`,
        `$JS.API.DIRECT.GET.KV_ledger_${run}`,
        `$JS.API.DIRECT.GET.KV_ledger_${run}.$KV.ledger_${run}.checkpoint`,
        `$JS.API.STREAM.INFO.KV_ledger_${run}`,
        `$JS.API.CONSUMER.CREATE.KV_ledger_${run}`,
        `$JS.API.CONSUMER.CREATE.KV_ledger_${run}.c.$KV.ledger_${run}.>`,
        `$JS.API.CONSUMER.DURABLE.CREATE.KV_ledger_${run}.c`,
        `$JS.API.STREAM.SNAPSHOT.KV_ledger_${run}`,
      ],
      'read what others sampled, or their scores': [
        `$JS.API.STREAM.MSG.GET.ROLLOUTS_${run}`,
        `$JS.API.STREAM.MSG.GET.SCORED_${run}`,
        `$JS.API.STREAM.MSG.GET.OBJ_bodies_${run}`,
        `$JS.API.STREAM.MSG.GET.UPLOADS_${run}`,
        `$JS.API.CONSUMER.MSG.NEXT.ROLLOUTS_${run}.reward`,
        `$JS.API.CONSUMER.MSG.NEXT.SCORED_${run}.learner-train`,
      ],
      'make a consumer, which could deliver to any subject': [
        `$JS.API.CONSUMER.CREATE.OBJ_weights_${run}`,
        `$JS.API.CONSUMER.CREATE.TICKETS_${run}`,
      ],
      'settle what others were given': [
        `$JS.ACK.SCORED_${run}.learner-train.1.1.1.1.0`,
        `$JS.ACK.ROLLOUTS_${run}.reward.1.1.1.1.0`,
      ],
      'change or empty a stream': [
        `$JS.API.STREAM.DELETE.SCORED_${run}`,
        `$JS.API.STREAM.PURGE.ROLLOUTS_${run}`,
        `$JS.API.STREAM.PURGE.OBJ_bodies_${run}`,
        `$JS.API.STREAM.PURGE.UPLOADS_${run}`,
        `$JS.API.STREAM.MSG.DELETE.UPLOADS_${run}`,
        `$JS.API.STREAM.MSG.DELETE.KV_actors_${run}`,
        `$JS.API.STREAM.UPDATE.TICKETS_${run}`,
        `$JS.API.STREAM.CREATE.MINE`,
        `$JS.API.CONSUMER.DELETE.TICKETS_${run}.actors-train`,
      ],
      'touch another run': ['offbeat.other.rollouts.actor-0', '$JS.API.STREAM.INFO.TICKETS_other'],
    },
    ears: [
      '>',
      '_INBOX.>',
      '_INBOX.learner.>',
      '_INBOX.actor.actor-1.>',
      'offbeat.>',
      '$KV.>',
      '$JS.>',
    ],
  },
  {
    identity: reward,
    deeds: {
      'publish rollouts or tickets': [
        `offbeat.${run}.rollouts.actor-0`,
        `offbeat.${run}.tickets.train`,
      ],
      'publish manifests or weights': [`$KV.policy_${run}.current`, `$O.weights_${run}.C.x`],
      'read or write the ledger': [
        `$JS.API.STREAM.MSG.GET.KV_ledger_${run}`,
        `$KV.ledger_${run}.checkpoint`,
      ],
      'take scores or make consumers': [
        `$JS.API.CONSUMER.MSG.NEXT.SCORED_${run}.learner-train`,
        `$JS.API.CONSUMER.CREATE.OBJ_bodies_${run}`,
      ],
    },
    ears: ['>', '_INBOX.>', `offbeat.${run}.>`],
  },
  {
    identity: observer,
    deeds: {
      'publish anything': [
        `offbeat.${run}.tickets.train`,
        `offbeat.${run}.scored.train`,
        `offbeat.${run}.events.step`,
        `$KV.ledger_${run}.checkpoint`,
        `$KV.policy_${run}.current`,
        `$KV.actors_${run}.actor-0`,
      ],
      'take from a queue, or change one': [
        `$JS.API.CONSUMER.MSG.NEXT.TICKETS_${run}.actors-train`,
        `$JS.API.STREAM.PURGE.SCORED_${run}`,
        `$JS.API.STREAM.DELETE.DEAD_${run}`,
      ],
    },
    ears: ['>', '_INBOX.>', `offbeat.${run}.rollouts.*`],
  },
  {
    identity: learner,
    deeds: {
      'publish rollouts or scores': [
        `offbeat.${run}.rollouts.actor-0`,
        `offbeat.${run}.scored.train`,
      ],
      'touch another run': ['offbeat.other.tickets.train', '$JS.API.STREAM.DELETE.TICKETS_other'],
    },
    ears: ['>', '_INBOX.>', `offbeat.${run}.rollouts.*`],
  },
] as const;

for (const withTls of [false, true]) {
  describe(
    `a run's NATS with a key for each role${withTls ? ' and TLS' : ''}`,
    { timeout: 120_000 },
    () => {
      let server: GuardedServer;
      before(async () => {
        server = await GuardedServer.start(Object.values(everybody), { withTls, run });
      });
      after(() => server[Symbol.asyncDispose]());

      it('the permissions allow each role all that it needs, including large messages', async () => {
        const brokers = await Promise.all(
          Object.values(everybody).map((identity) => server.connect(identity)),
        );
        const [trains, scores, watches, samples] = brokers as [
          Broker,
          Broker,
          Broker,
          Broker,
          Broker,
        ];
        await trains.ensureRun({ trainTickets: 8, evalTickets: 8 });
        await new RunConfigStore(trains).put(runConfig({ run }));
        const leads = await trains.ledger.lead('learner', never);
        await trains.ledger.write(checkpoint());
        const update = { version: 0, samplerPath: 'tinker://m/v0', smallestUsefulVersion: 0 };
        const adapter = { bytes: new Uint8Array(300_000).fill(7), rank: 4, alpha: 8 };
        await trains.policy.publish(update, adapter);
        await trains.policy.publish(update, adapter); // as after a restart
        await trains.resetConsumer('scored.train');
        await trains.clearQueue('tickets.eval');
        const tickets = trains.names.subjects.tickets('train');
        await trains.publish(tickets, Ticket, ticket({ ticketId: 'withdrawn' }), sent('w'));
        const queued = (await trains.tickets.poll('train'))!.tickets;
        assert.deepEqual(
          queued.map(({ seq, ticket: { ticketId }, isTaken }) => [seq, ticketId, isTaken]),
          [[1, 'withdrawn', false]],
        );
        assert.equal(await trains.tickets.withdraw(1), true);
        assert.equal(await trains.tickets.withdraw(1), false); // nothing is left to withdraw
        assert.deepEqual((await trains.tickets.poll('train'))!.tickets, []);
        await trains.publish(tickets, Ticket, ticket(), sent('t'));

        assert.equal((await new RunConfigStore(samples).wait(never)).run, run);
        const manifest = await samples.policy.current();
        assert.deepEqual(await samples.policy.fetchAdapter(manifest!), adapter.bytes);
        await samples.actors.renew(actorLease());
        await taken(samples, 'tickets.train', Ticket);
        const group = rolloutGroup({}, 80_000); // two of them do not fit into a message
        await samples.publish(
          samples.names.subjects.rollouts('actor-0'),
          RolloutGroup,
          group,
          sent('r'),
        );
        await samples.deadLetters.store('actor', 'tried', {
          subject: 'x',
          data: new Uint8Array([1]),
        });

        assert.deepEqual(await taken(scores, 'rollouts', RolloutGroup), group);
        const scored = scoredGroup({ group });
        await scores.publish(scores.names.subjects.scored('train'), ScoredGroup, scored, sent('s'));
        assert.deepEqual(await taken(trains, 'scored.train', ScoredGroup), scored);
        await trains.events.emit({ v: 1, at: 1, kind: 'version', version: 0 });

        const { policy, ledger, actors, events } = watches;
        assert.equal((await new RunConfigStore(watches).get())?.run, run);
        assert.deepEqual(await policy.versions(), [0]);
        assert.equal((await ledger.read())?.version, checkpoint().version);
        assert.deepEqual(
          (await actors.list()).map((lease) => lease.actor),
          ['actor-0'],
        );
        for await (const event of events.past(never)) assert.equal(event.kind, 'version');
        const { streams } = await watches.backlog();
        assert.deepEqual(
          [streams.tickets.messages, streams.scored.messages, streams.dead.messages],
          [0, 0, 1],
        );

        await trains.policy.retire(new Set([1]));
        await leads[Symbol.asyncDispose]();
        for (const broker of brokers) await broker[Symbol.asyncDispose]();
        assert.deepEqual(await server.refusals(), []);

        await using old = await server.connect(everybody.reward); // with the rights of an older release
        assert.equal(await old.tickets.withdraw(1), false);
      });

      for (const { identity, deeds, ears } of forbidden) {
        describe(`to the ${identity.role}`, () => {
          let broker: Broker;
          before(async () => {
            broker = await server.connect(identity);
          });
          after(() => broker[Symbol.asyncDispose]());

          for (const [deed, subjects] of Object.entries<readonly string[]>(deeds)) {
            it(`the server refuses to ${deed}`, async () => {
              for (const subject of subjects) {
                await assert.rejects(
                  broker.link.connection.request(subject, new Uint8Array(), { timeout: 10_000 }),
                  { code: 'PERMISSIONS_VIOLATION' },
                  subject,
                );
              }
            });
          }

          it('the server refuses subscriptions to foreign subjects', async () => {
            for (const subject of ears) {
              const refused = new Promise((resolve) => {
                broker.link.connection.subscribe(subject, { callback: resolve });
              });
              assert.equal(
                ((await refused) as { code?: string } | null)?.code,
                'PERMISSIONS_VIOLATION',
              );
            }
          });
        });
      }

      it('the run is unchanged by all refused attempts', async () => {
        await using watches = await server.connect(observer);
        const { streams } = await watches.backlog();
        const messages = Object.values(streams).map((stream) => stream.messages);
        assert.deepEqual(messages, [0, 0, 0, 1]);
        assert.equal((await watches.policy.current())?.version, 0);
        assert.equal((await watches.ledger.read())?.version, checkpoint().version);
      });

      it('the server rejects clients without a key or with a key of another server', async () => {
        await assert.rejects(
          server.connect(actor, { natsNkeySeedFile: undefined, connectTimeoutMs: 200 }),
          /refused the credentials .*--nats-nkey-seed-file/,
        );
        await using elsewhere = await GuardedServer.start([actor]);
        const natsNkeySeedFile = join(elsewhere.nats.keyFolder, 'actor.actor-0.nk');
        await assert.rejects(
          server.connect(actor, { natsNkeySeedFile }),
          /refused the credentials/,
        );
      });

      if (withTls) {
        it('a client that does not know the certificate authority rejects the server', async () => {
          await assert.rejects(
            server.connect(actor, { natsCaFile: undefined, connectTimeoutMs: 200 }),
            /no NATS server answers .*(certificate|self-signed)/,
          );
        });
      }
    },
  );
}

describe('the key of a service', { timeout: 60_000 }, () => {
  it('a key file is refused without printing it if every user may read it or if it is not a key', async () => {
    await using server = await GuardedServer.start([actor]);
    const natsNkeySeedFile = join(server.folder, 'seed');
    await writeFile(natsNkeySeedFile, 'hunter2\n', { mode: 0o600 });
    await assert.rejects(server.connect(actor, { natsNkeySeedFile }), (error: Error) => {
      assert.match(error.message, /--nats-nkey-seed-file .*seed does not hold the seed of an nkey/);
      return !error.message.includes('hunter2');
    });
    await chmod(natsNkeySeedFile, 0o644);
    await assert.rejects(server.connect(actor, { natsNkeySeedFile }), /chmod 600/);
    await assert.rejects(
      server.connect(actor, { natsNkeySeedFile: join(server.folder, 'nowhere') }),
      /cannot read --nats-nkey-seed-file/,
    );
  });
});

function sent(msgId: string) {
  return { msgId, signal: never };
}

/** The next message of a queue, acknowledged. */
async function taken<S extends z.ZodType>(
  broker: Broker,
  source: Source,
  schema: S,
): Promise<z.output<S>> {
  const found: z.output<S>[] = [];
  const stop = new AbortController();
  const options = { signal: stop.signal, log: silent, stage: source, concurrency: 1 };
  const consuming = consume(broker, source, schema, options, ({ value }) => {
    found.push(value);
    return Promise.resolve();
  });
  await until(() => found.length > 0);
  stop.abort();
  await consuming;
  return found[0]!;
}
