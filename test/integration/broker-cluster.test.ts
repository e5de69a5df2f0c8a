import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { writeNatsConfig } from '../../cli/nats-config.js';
import { accessWith } from '../../cli/nats-server/keys.js';
import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { type Identity, identityName } from '../../shared/broker/permissions.js';
import { streamSettings } from '../../shared/broker/run-layout.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { brokerOn } from '../support/broker.js';
import { everybody } from '../support/guarded-server.js';
import { silent } from '../support/log.js';
import {
  actorLease,
  checkpoint,
  rolloutGroup,
  runConfig,
  scoredGroup,
  ticket,
} from '../support/messages.js';
import { NatsCluster } from '../support/nats-cluster.js';
import type { NatsServer } from '../support/nats-server.js';
import { never, until } from '../support/waiting.js';

const run = 'far';
const limits = { trainTickets: 64, evalTickets: 8, replicas: 3 };
const { learner, reward, observer, actor } = everybody;
const added = { role: 'actor', actor: 'actor-3' } as const;

/** A message that a dying server accepted and did not forward is redelivered after this time. */
const ackWaitMs = { 'tickets.train': 3_000, rollouts: 3_000, 'scored.train': 3_000 };

describe(
  'a run on a cluster of three NATS servers, with the keys and the TLS of offbeat nats-config',
  { timeout: 120_000 },
  () => {
    let keys: string;
    let cluster: NatsCluster;
    let trains: Broker;
    let samples: Broker;
    let scores: Broker;
    let watches: Broker;
    const working: Promise<void>[] = [];
    const stop = new AbortController();
    const trained = new Set<number>(); // by the order of their tickets
    let issued = 0;

    before(async () => {
      keys = await mkdtemp(join(tmpdir(), 'offbeat-keys-'));
      await writeConfig(2);
      cluster = await NatsCluster.start(`include "../${basename(keys)}/nats-server.conf"`);
      const [one, two, three] = cluster.servers;
      trains = await connect(one, learner);
      samples = await connect(two, actor);
      scores = await connect(three, reward);
      watches = await connect(three, observer);
      await trains.ensureRun(limits);
      working.push(sample(samples), score(), train());
    });
    after(async () => {
      stop.abort();
      await Promise.all(working);
      for (const broker of [trains, samples, scores, watches]) await broker[Symbol.asyncDispose]();
      await cluster[Symbol.asyncDispose]();
      await rm(keys, { recursive: true });
    });

    it('each stream is kept on all three servers', async () => {
      for (const { name } of streamSettings(watches.names, limits)) {
        const { config, cluster: where } = await watches.link.jsm.streams.info(name);
        assert.equal(config.num_replicas, 3);
        assert.equal(where?.replicas?.length, 2);
      }
    });

    it('tickets, rollouts, scores and reads travel between the servers of different clients', async () => {
      await new RunConfigStore(trains).put(runConfig({ run }));
      await using _leads = await trains.ledger.lead('learner', never);
      await trains.ledger.write(checkpoint());
      const adapter = { bytes: new Uint8Array(300_000).fill(7), rank: 4, alpha: 8 };
      const update = { version: 0, samplerPath: 'tinker://m/v0', smallestUsefulVersion: 0 };
      await trains.policy.publish(update, adapter);

      assert.equal((await new RunConfigStore(samples).wait(never)).run, run);
      const manifest = await samples.policy.current();
      assert.deepEqual(await samples.policy.fetchAdapter(manifest!), adapter.bytes);
      await samples.actors.renew(actorLease());
      const leases = await watches.actors.list();
      assert.deepEqual(
        leases.map((lease) => lease.actor),
        ['actor-0'],
      );
      assert.equal((await watches.ledger.read())?.version, checkpoint().version);
      await trainOn(20);
    });

    it('a cluster refuses forbidden subjects and sends no answer out of the account of the requester', async () => {
      const { connection } = samples.link;
      for (const subject of [
        `offbeat.${run}.scored.train`,
        `offbeat.${run}.rollouts.actor-1`,
        `$JS.API.STREAM.MSG.GET.KV_ledger_${run}`,
      ]) {
        await assert.rejects(connection.request(subject, '', { timeout: 10_000 }), {
          code: 'PERMISSIONS_VIOLATION',
        });
      }
      const question = `$JS.API.STREAM.INFO.KV_policy_${run}`;
      const reply = `$KV.policy_${run}.current`;
      connection.publish(question, '', { reply });
      await connection.request(question, '', { timeout: 10_000 }); // the first is answered by then
      assert.equal((await trains.policy.current())?.version, 0);
    });

    it('actors can be added during a run: its servers restart one after another', async () => {
      await trainThrough(async () => {
        await writeConfig(4);
        await restartServers();
      });

      await using another = await connect(cluster.servers[0], added);
      await another.actors.renew(actorLease({ actor: 'actor-3' }));
      const policyIsHeard = heard(another, another.names.subjects.policyChanged);
      await another.link.connection.flush();
      const update = { version: 1, samplerPath: 'tinker://m/v1', smallestUsefulVersion: 0 };
      await trains.policy.publish(update);
      await policyIsHeard;
      assert.equal((await another.policy.current())?.version, 1);
    });

    it('a restarted server rejects an actor whose key was replaced', async () => {
      const { servers } = cluster;
      const old = await connect(servers[0], added);
      await rm(join(keys, 'actor.actor-3.nk'));
      await writeConfig(4);
      await restartServers();
      assert.match(String(await old.link.connection.closed()), /authorization/i);
      await using again = await connect(servers[0], added);
      assert.equal((await again.policy.current())?.version, 1);
    });

    it('a run continues when one server is killed', async () => {
      const ofActor = cluster.servers.find((server) => isServedBy(samples, server))!;
      await trainThrough(() => ofActor.stop('SIGKILL'));
      assert(!isServedBy(samples, ofActor));
      await ofActor.resume();
    });

    async function restartServers(): Promise<void> {
      for (const server of cluster.servers) {
        await server.stop();
        await cluster.resume(server);
      }
    }

    async function writeConfig(actors: number): Promise<void> {
      const tlsHosts = '127.0.0.1';
      await writeNatsConfig({ run, out: keys, actors, evalActors: 0, tlsHosts });
    }

    function connect(server: NatsServer, identity: Identity): Promise<Broker> {
      return brokerOn(server, {
        ...accessWith(keys, identity),
        run,
        client: identityName(identity),
        identity,
        ackWaitMs,
        connectTimeoutMs: 30_000, // until there is a leader of all streams
      });
    }

    /** Issues tickets during a fault and some more after it; resolves once all were trained on. */
    async function trainThrough(deed: () => Promise<void>): Promise<void> {
      const stages = { isDone: false };
      const doing = deed().finally(() => (stages.isDone = true));
      do await trainOn(1);
      while (!stages.isDone);
      await doing;
      await trainOn(20);
    }

    async function trainOn(groups: number): Promise<void> {
      const end = issued + groups;
      for (; issued < end; issued++) {
        const one = ticket({ ticketId: `t-${issued}`, order: issued });
        const sent = { msgId: one.ticketId, signal: never };
        await trains.publish(trains.names.subjects.tickets('train'), Ticket, one, sent);
      }
      await until(() => trained.size === end);
    }

    async function sample(broker: Broker): Promise<void> {
      const options = { signal: stop.signal, log: silent, stage: 'actor', concurrency: 4 };
      await consume(broker, 'tickets.train', Ticket, options, async ({ value }) => {
        const sent = { msgId: value.ticketId, signal: stop.signal };
        const subject = broker.names.subjects.rollouts('actor-0');
        await broker.publish(subject, RolloutGroup, rolloutGroup({ ticket: value }), sent);
      });
    }

    async function score(): Promise<void> {
      const options = { signal: stop.signal, log: silent, stage: 'reward', concurrency: 4 };
      await consume(scores, 'rollouts', RolloutGroup, options, async ({ value: group }) => {
        const sent = { msgId: group.ticket.ticketId, signal: stop.signal };
        const subject = scores.names.subjects.scored('train');
        await scores.publish(subject, ScoredGroup, scoredGroup({ group }), sent);
      });
    }

    async function train(): Promise<void> {
      const options = { signal: stop.signal, log: silent, stage: 'learner', concurrency: 4 };
      await consume(trains, 'scored.train', ScoredGroup, options, ({ value }) => {
        trained.add(value.group.ticket.order);
        return Promise.resolve();
      });
    }
  },
);

function isServedBy({ link }: Broker, { port }: NatsServer): boolean {
  return link.connection.getServer().endsWith(`:${port}`);
}

/** Resolves with the first message. */
function heard({ link }: Broker, subject: string): Promise<void> {
  return new Promise((resolve) => {
    link.connection.subscribe(subject, {
      max: 1,
      callback: () => {
        resolve();
      },
    });
  });
}
