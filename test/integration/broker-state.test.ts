import assert from 'node:assert/strict';
import { decode as unpack, encode as pack } from '@msgpack/msgpack';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { Broker } from '../../shared/broker/broker.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { nameToken } from '../../shared/broker/names.js';
import { ObjectBucket } from '../../shared/broker/object-bucket.js';
import { ActorLease } from '../../shared/wire/actor-lease.js';
import { encode } from '../../shared/wire/codec.js';
import { brokerOn } from '../support/broker.js';
import { actorLease, checkpoint, runConfig } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/waiting.js';

describe('what a run keeps in NATS', { timeout: 180_000 }, () => {
  let server: NatsServer;
  let broker: Broker;
  let stopping: AbortController;
  before(async () => {
    server = await NatsServer.start();
  });
  after(() => server[Symbol.asyncDispose]());
  beforeEach(async () => {
    stopping = new AbortController();
    broker = await brokerOn(server);
    await broker.ensureRun({ trainTickets: 4, evalTickets: 2 });
  });
  afterEach(async () => {
    stopping.abort();
    await broker.deleteRun();
    await broker[Symbol.asyncDispose]();
  });
  const publishVersion = (version: number, bytes?: Uint8Array) =>
    broker.policy.publish(
      { version, samplerPath: `tinker://run/sampler/${version}`, smallestUsefulVersion: 0 },
      bytes && { bytes, rank: 4, alpha: 8 },
    );

  describe('the policy store', () => {
    it('the policy store returns the adapter of a version exactly as published', async () => {
      const bytes = Uint8Array.from({ length: 300_000 }, (_, i) => i % 251);
      const published = await publishVersion(1, bytes);
      assert.deepEqual(await broker.policy.current(), published);
      assert.deepEqual(await broker.policy.at(1), published);
      assert.deepEqual([published.adapter?.rank, published.adapter?.alpha], [4, 8]);
      assert.deepEqual(
        Buffer.from(await broker.policy.fetchAdapter(published)),
        Buffer.from(bytes),
      );
    });

    it('the policy store deletes adapters that no manifest names, and chunks of none', async () => {
      const { names } = broker.link;
      const published = await publishVersion(
        1,
        Uint8Array.from({ length: 300_000 }, (_, i) => i % 251),
      );
      const weights = new ObjectBucket(broker.link, names.objects.weights, () =>
        Promise.resolve(1e6),
      );
      await weights.put(() => 'adapter-2-0000', new Uint8Array(200_000), { replaces: true });
      const chunk = `$O.${names.objects.weights}.C.killed`;
      await broker.link.js.publish(chunk, Uint8Array.of(1));
      const confirmLead = () => Promise.resolve();
      const deposed = () => Promise.reject(new Error('another learner leads'));
      await assert.rejects(broker.policy.deleteOrphans(deposed), /another learner leads/);
      assert.equal(await broker.policy.deleteOrphans(confirmLead), 3); // an entry, its chunks, and the chunk
      assert.equal(await weights.get('adapter-2-0000'), undefined);
      assert.equal((await broker.policy.fetchAdapter(published)).byteLength, 300_000);
      assert.equal(await broker.policy.deleteOrphans(confirmLead), 0);
    });

    it('the policy store refuses an adapter that does not match its manifest', async () => {
      const first = await publishVersion(1, Uint8Array.of(1, 2, 3));
      const second = await publishVersion(2, Uint8Array.of(4, 5, 6));
      const swapped = {
        ...first,
        adapter: { ...first.adapter!, uri: second.adapter!.uri },
      } satisfies PolicyManifest;
      await assert.rejects(
        broker.policy.fetchAdapter(swapped),
        /adapter of policy version 1 has SHA-256 [0-9a-f]{64} \(3 bytes\)/,
      );
    });

    it('watchers take the manifest from its announcement, unless it comes late or is empty', async () => {
      const { connection, names } = broker.link;
      const subject = names.subjects.policyChanged;
      const announced: Uint8Array[] = [];
      connection.subscribe(subject, { callback: (_, { data }) => announced.push(data) });
      await publishVersion(1);
      await publishVersion(2);
      const stored = await publishVersion(3);
      await until(() => announced.length === 3);
      const watching = broker.policy.watch(stopping.signal);
      const next = async () => (await watching.next()).value?.version;
      assert.equal(await next(), 3);
      const [, second, third] = announced.map((data) => unpack(data) as Record<string, object>);
      const newer = { ...third, revision: 1_000, manifest: { ...third!['manifest'], version: 4 } };
      connection.publish(subject, pack(newer));
      assert.equal(await next(), 4); // no bucket has it, so it was not read there
      connection.publish(subject, pack(second));
      assert.deepEqual((await watching.next()).value, stored); // a late one makes it read the bucket
      await publishVersion(5);
      connection.publish(subject);
      assert.equal(await next(), 5);
    });

    it('an answer of the server is not taken for an announcement, wherever a client has it sent', async () => {
      const { connection, names } = broker.link;
      const subject = names.subjects.policyChanged;
      const announced: Uint8Array[] = [];
      connection.subscribe(subject, { callback: (_, { data }) => announced.push(data) });
      await publishVersion(1);
      await until(() => announced.length === 1);
      const first = unpack(announced[0]!) as { manifest: object };
      const forged = { ...first, revision: 1_000, manifest: { ...first.manifest, version: 9 } };
      await publishVersion(2, pack(forged));
      const watching = broker.policy.watch(stopping.signal);
      const next = async () => (await watching.next()).value?.version;
      assert.equal(await next(), 2);
      const weights = names.objects.weights;
      const query = JSON.stringify({ last_by_subj: `$O.${weights}.C.>` });
      connection.publish(`$JS.API.DIRECT.GET.OBJ_${weights}`, query, { reply: subject });
      await until(() => announced.length === 3);
      assert.deepEqual(unpack(announced[2]!), forged);
      connection.publish(subject, pack(forged), { reply: 'the.acknowledgment' });
      const third = next();
      await publishVersion(3);
      assert.equal(await third, 3);
    });

    it('the policy store sends watchers the current version first, then each newer one in rising order', async () => {
      await publishVersion(0);
      const seen: number[] = [];
      const watching = (async () => {
        for await (const { version } of broker.policy.watch(stopping.signal)) seen.push(version);
      })();
      await until(() => seen.length === 1);
      for (let version = 1; version <= 20; version++) await publishVersion(version);
      await until(() => seen.at(-1) === 20);
      assert.deepEqual(
        seen,
        seen.toSorted((a, b) => a - b),
      );
      assert.equal(new Set(seen).size, seen.length);
      assert.equal(seen[0], 0);
      stopping.abort();
      await watching;
    });

    it('the policy store notifies a watcher that started before the first version', async () => {
      const first = broker.policy.watch(stopping.signal).next();
      await publishVersion(0);
      assert.equal((await first).value?.version, 0);
    });

    it('the policy store never returns to an older version', async () => {
      await publishVersion(3);
      await assert.rejects(publishVersion(2), /version 2: 3 is already published/);
      assert.equal((await broker.policy.current())?.version, 3);
    });

    it('the policy store publishes the current version again with another sampling session', async () => {
      await publishVersion(3);
      const { samplerPath } = (await broker.policy.current())!;
      const update = { version: 3, samplerPath, smallestUsefulVersion: 2 };
      await broker.policy.publish({ ...update, samplingSessionId: 's-2' });
      assert.equal((await broker.policy.current())?.samplingSessionId, 's-2');
    });

    it('the policy store keeps the version of a new learner against late writes of the old one', async () => {
      await publishVersion(3, Uint8Array.of(3));
      await using former = await brokerOn(server);
      const stale = (samplerPath: string) =>
        former.policy.publish(
          { version: 4, samplerPath, smallestUsefulVersion: 0 },
          { bytes: Uint8Array.of(66), rank: 4, alpha: 8 },
        );
      // It may be in the middle of a publication when the new one publishes, or start after it.
      const racing = await Promise.allSettled([
        stale('tinker://former'),
        publishVersion(4, Uint8Array.of(4)),
      ]);
      const winner = (await broker.policy.current())!;
      assert.equal(racing.filter(({ status }) => status === 'fulfilled').length, 1);
      const isFormer = winner.samplerPath === 'tinker://former';
      await assert.rejects(
        isFormer ? publishVersion(4, Uint8Array.of(4)) : stale('tinker://former'),
        /version 4: another learner has published it/,
      );
      const bytes = await broker.policy.fetchAdapter(winner);
      assert.deepEqual(bytes, Uint8Array.of(isFormer ? 66 : 4));
      assert.deepEqual(await broker.policy.at(4), winner);
      const { state } = await broker.link.jsm.streams.info('OBJ_weights_test');
      assert.equal(state.messages, 4); // the adapters of 3 and 4, each an entry and one chunk
    });

    it('the policy store keeps nothing of a learner that is overtaken while it publishes', async () => {
      await using former = await brokerOn(server);
      const stored = async () =>
        (await broker.link.jsm.streams.info('OBJ_weights_test')).state.messages;
      /** Publishes a version with a large adapter and, while that is sent, the next one as another learner. */
      const overtaken = async (version: number) => {
        const before = await stored();
        const samplerPath = `tinker://run/sampler/${version}`;
        const late = former.policy.publish(
          { version, samplerPath, smallestUsefulVersion: 0 },
          { bytes: new Uint8Array(40_000_000), rank: 4, alpha: 8 },
        );
        const refused = assert.rejects(late, /another learner has published it/);
        await until(async () => (await stored()) > before);
        await publishVersion(version + 1, Uint8Array.of(version + 1));
        await refused;
      };
      await publishVersion(3, Uint8Array.of(3));
      await overtaken(4);
      assert.deepEqual(await broker.policy.versions(), [3, 5]);
      assert.equal(await stored(), 4); // the adapters of 3 and 5, each an entry and one chunk

      const before = await publishVersion(6, Uint8Array.of(6));
      await overtaken(6); // publishes it again, as with another sampling session
      assert.deepEqual(await broker.policy.at(6), before);
      assert.deepEqual(await broker.policy.fetchAdapter(before), Uint8Array.of(6));
      assert.equal(await stored(), 8);
    });

    it('the policy store deletes unused versions completely, but never the current one', async () => {
      for (let version = 0; version < 4; version++) {
        await publishVersion(version, Uint8Array.of(version));
      }
      const first = await broker.policy.at(0);
      const retired = await broker.policy.retire(new Set([1, 3]));
      assert.deepEqual(retired, [0, 2]);
      assert.equal(await broker.policy.at(0), undefined);
      assert.notEqual(await broker.policy.at(1), undefined);
      assert.notEqual(await broker.policy.at(3), undefined);
      await assert.rejects(broker.policy.fetchAdapter(first!), /version 0 has been retired/);
      const { state } = await broker.link.jsm.streams.info('OBJ_weights_test');
      assert.equal(state.messages, 4); // two adapters, each an entry and one chunk
    });

    it('the policy store keeps the manifest of weights that could not be deleted, to retry', async () => {
      for (let version = 0; version < 4; version++) {
        await publishVersion(version, Uint8Array.of(version));
      }
      const asked: string[] = [];
      const forget = ({ version, samplerPath }: PolicyManifest) => {
        asked.push(samplerPath);
        return Promise.resolve(version !== 1 || asked.length > 3);
      };
      const keep = new Set([3]);
      assert.deepEqual(await broker.policy.retire(keep, forget), [0, 2]);
      assert.deepEqual(await broker.policy.versions(), [1, 3]);
      const path = (await broker.policy.at(1))!.samplerPath;
      assert.deepEqual(await broker.policy.retire(keep, forget), [1]);
      assert.equal(asked.at(-1), path);
      assert.deepEqual(await broker.policy.versions(), [3]);
    });

    it('the policy store does not grow with the number of past versions', async () => {
      for (let version = 0; version < 20; version++) {
        await publishVersion(version, new Uint8Array(200_000).fill(version));
        await broker.policy.retire(new Set([version - 1, version]));
      }
      assert.deepEqual(await broker.policy.versions(), [18, 19]);
      const { state } = await broker.link.jsm.streams.info('OBJ_weights_test');
      assert.equal(state.messages, 2 * 3); // two adapters, each an entry and two chunks
      assert(state.bytes < 2 * 210_000, `${state.bytes} bytes`);
    });

    it('the policy store never deletes a version published after the retention decision', async () => {
      for (let version = 0; version < 4; version++) {
        await publishVersion(version, Uint8Array.of(version));
      }
      const retired = await broker.policy.retire(new Set([1]));
      assert.deepEqual(retired, [0]);
      for (const version of [1, 2, 3]) {
        const manifest = await broker.policy.at(version);
        assert.deepEqual(await broker.policy.fetchAdapter(manifest!), Uint8Array.of(version));
      }
    });
  });

  describe('the ledger', () => {
    const quick = { renewEveryMs: 50, expiresMs: 400 };

    it('the ledger keeps the last checkpoint', async () => {
      assert.equal(await broker.ledger.read(), undefined);
      await broker.ledger.write(checkpoint({ step: 1 }));
      await broker.ledger.write(checkpoint({ step: 2 }));
      assert.equal((await broker.ledger.read())?.step, 2);
    });

    it('the ledger keeps some earlier checkpoints, also in a run that began without history', async () => {
      const { jsm } = broker.link;
      await jsm.streams.update('KV_ledger_test', { max_msgs: 16, max_msgs_per_subject: 1 });
      await broker.ledger.write(checkpoint({ step: 1 }));
      await broker.ledger.write(checkpoint({ step: 2 }));
      const steps = async () => (await broker.ledger.history()).map(({ step }) => step);
      assert.deepEqual(await steps(), [2]);
      await broker.ensureRun({ trainTickets: 1, evalTickets: 1 });
      for (let step = 3; step <= 20; step++) await broker.ledger.write(checkpoint({ step }));
      assert.deepEqual(await steps(), [20, 19, 18, 17, 16, 15, 14, 13]);
      assert.equal((await broker.ledger.read())?.step, 20);
    });

    it('the ledger skips an unreadable checkpoint', async () => {
      await broker.ledger.write(checkpoint({ step: 1 }));
      await broker.link.connection.request('$KV.ledger_test.checkpoint', 'no checkpoint');
      const steps = (await broker.ledger.history()).map(({ step }) => step);
      assert.deepEqual(steps, [1]);
    });

    it('the ledger lets one learner lead; the next one leads when the first has finished', async () => {
      await using other = await brokerOn(server);
      const first = await broker.ledger.lead('a', stopping.signal, quick);
      let isSecondLeading = false;
      const second = other.ledger.lead('b', stopping.signal, quick).then((leadership) => {
        isSecondLeading = true;
        return leadership;
      });
      // Well past the expiry: only the renewals keep the second one waiting.
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      assert.equal(isSecondLeading, false);
      assert.equal(first.signal.aborted, false);
      await first[Symbol.asyncDispose]();
      await (await second)[Symbol.asyncDispose]();
    });

    it('a learner with a shorter lease does not take the lead before the longer lease of the leader expires', async () => {
      await using other = await brokerOn(server);
      const long = { renewEveryMs: 3_600_000, expiresMs: 3_600_000 };
      const leading = await broker.ledger.lead('a', stopping.signal, long);
      const waiting = new AbortController();
      const second = other.ledger.lead('b', waiting.signal, quick);
      await new Promise((resolve) => setTimeout(resolve, 1_000)); // well past the shorter lease
      waiting.abort();
      await assert.rejects(second, { name: 'AbortError' });
      await leading[Symbol.asyncDispose]();
    });

    it('the lead passes to another learner when the leader is gone, and excludes the old one', async () => {
      await using old = await brokerOn(server);
      const lost = await old.ledger.lead('a', stopping.signal, {
        renewEveryMs: 1_000,
        expiresMs: 1,
      });
      await old.ledger.write(checkpoint({ step: 1 }));
      // The old leader renews too rarely, as a stopped process does.
      await using led = await broker.ledger.lead('b', stopping.signal, quick);
      await assert.rejects(
        old.ledger.write(checkpoint({ step: 2 })),
        /another learner has written the ledger of run test/,
      );
      assert.equal((await broker.ledger.read())?.step, 1);
      await broker.ledger.write(checkpoint({ step: 3 }));
      await until(() => lost.signal.aborted);
      assert.equal(led.signal.aborted, false);
      await lost[Symbol.asyncDispose]();
    });

    it('calls that confirm the lead at the same time share a renewal, and fail once it is lost', async () => {
      await using old = await brokerOn(server);
      const rarely = { renewEveryMs: 3_600_000, expiresMs: 1 };
      const leadership = await old.ledger.lead('a', stopping.signal, rarely);
      const { buckets } = old.names;
      const writes = async () =>
        (await old.link.jsm.streams.info(`KV_${buckets.ledger}`)).state.last_seq;
      const before = await writes();
      const confirmAll = () => Promise.all(Array.from({ length: 10 }, () => leadership.confirm()));
      await confirmAll();
      assert.equal((await writes()) - before, 1);
      await using _led = await broker.ledger.lead('b', stopping.signal, quick);
      await assert.rejects(confirmAll(), /another learner leads run test now/);
      await leadership[Symbol.asyncDispose]();
    });

    it('the lead goes at once to the same learner after a restart', async () => {
      await using restarted = await brokerOn(server);
      const never = { renewEveryMs: 3_600_000, expiresMs: 3_600_000 };
      const before = await broker.ledger.lead('pod-0', stopping.signal, never);
      const again = await restarted.ledger.lead('pod-0', stopping.signal, never);
      await again[Symbol.asyncDispose]();
      await before[Symbol.asyncDispose]();
    });

    it('a learner stops waiting for the lead when the signal aborts', async () => {
      await using other = await brokerOn(server);
      await using _leading = await broker.ledger.lead('a', stopping.signal);
      const waiting = new AbortController();
      const second = other.ledger.lead('b', waiting.signal);
      waiting.abort();
      await assert.rejects(second, { name: 'AbortError' });
    });
  });

  it('the broker waits for the run configuration and returns the same to every service', async () => {
    await using actor = await brokerOn(server);
    const read = new RunConfigStore(actor);
    const waiting = read.wait(stopping.signal);
    assert.equal(await read.get(), undefined);
    await new RunConfigStore(broker).put(runConfig());
    assert.deepEqual(await waiting, runConfig());
    await assert.rejects(
      new RunConfigStore(broker).put(runConfig({ run: 'other' })),
      /run other does not belong/,
    );
  });

  it('the broker lists each actor once, with its newest lease', async () => {
    const lease = actorLease({ actor: 'pod.1' });
    await broker.actors.renew(lease);
    await broker.actors.renew({ ...lease, version: 2, lastSeenAt: 2 });
    await broker.actors.renew({ ...lease, actor: 'pod/1' });
    // An actor may write only its own entry, and in it any name.
    const forged = encode(ActorLease, { ...lease, actor: 'pod-2' });
    await broker.link.connection.request(`$KV.actors_test.${nameToken('pod-3')}`, forged);
    const leases = await broker.actors.list();
    assert.deepEqual(
      leases.map(({ actor, version }) => [actor, version]).toSorted(),
      [
        ['pod.1', 2],
        ['pod/1', 0],
      ].toSorted(),
    );
  });

  it('a run adapts to new limits without losing messages', async () => {
    const { signal } = stopping;
    const { Ticket } = await import('../../shared/wire/ticket.js');
    const { ticket } = await import('../support/messages.js');
    for (let order = 0; order < 4; order++) {
      const message = ticket({ ticketId: `t-${order}`, order });
      const subject = broker.names.subjects.tickets('train');
      await broker.publish(subject, Ticket, message, { msgId: `t-${order}`, signal });
    }
    await broker.ensureRun({ trainTickets: 1, evalTickets: 1 });
    assert.equal((await broker.depths()).tickets, 4);
    await broker.ensureRun({ trainTickets: 40, evalTickets: 2 });
    const { config } = await broker.link.jsm.streams.info('TICKETS_test');
    assert.equal(config.max_msgs, 42);
  });

  it('a learner that waits for the lead changes nothing of the run, also when NATS is there again after an outage', async () => {
    await using proxy = await TcpProxy.before(server.port);
    await using waits = await brokerOn(server, { natsUrl: `nats://127.0.0.1:${proxy.port}` });
    const quick = { renewEveryMs: 100, expiresMs: 3_600_000 };
    const room = async () => (await broker.link.jsm.streams.info('TICKETS_test')).config.max_msgs;
    const large = { trainTickets: 40, evalTickets: 2 };
    const leads = await broker.lead('a', large, stopping.signal, quick);
    assert.equal(await room(), 42);
    const replicas = async () =>
      (await broker.link.jsm.streams.info('KV_ledger_test')).config.num_replicas;
    const trial = { name: 'trial', subjects: ['trial'], num_replicas: 3 };
    // nats-server 2.9.10 accepts this number without a cluster, 2.15.1 refuses it.
    const more = await broker.link.jsm.streams.add(trial).then(
      () => 3,
      () => 1,
    );
    const small = { trainTickets: 1, evalTickets: 1, replicas: more };
    const next = waits.lead('b', small, stopping.signal, quick);
    await until(async () => waits.isConnected && (await waits.ledger.leader())?.holder === 'a');
    proxy.cut();
    await until(() => waits.restorations === 1);
    assert.deepEqual([await room(), await replicas()], [42, 1]);
    await leads[Symbol.asyncDispose]();
    await using _leads = await next;
    assert.deepEqual([await room(), await replicas()], [2, more]);
  });

  it('a learner that has lost the lead changes nothing of the run when its connection returns', async () => {
    await using proxy = await TcpProxy.before(server.port);
    await using old = await brokerOn(server, { natsUrl: `nats://127.0.0.1:${proxy.port}` });
    const room = async () => (await broker.link.jsm.streams.info('TICKETS_test')).config.max_msgs;
    const small = { trainTickets: 10, evalTickets: 2 };
    const large = { trainTickets: 40, evalTickets: 2 };
    const rarely = { renewEveryMs: 3_600_000, expiresMs: 1 };
    const quick = { renewEveryMs: 100, expiresMs: 300 };
    const lost = await old.lead('a', small, stopping.signal, rarely);
    await using _leads = await broker.lead('b', large, stopping.signal, quick);
    assert.equal(await room(), 42);
    proxy.cut();
    await until(() => lost.signal.aborted);
    await new Promise(setImmediate);
    assert.deepEqual([await room(), old.restorations], [42, 0]);
    await lost[Symbol.asyncDispose]();
  });

  it('the broker names a stream that cannot have the settings that it needs', async () => {
    await broker.deleteRun();
    await broker.link.jsm.streams.add({
      name: 'TICKETS_test',
      subjects: ['offbeat.test.tickets.*'],
    });
    await assert.rejects(broker.ensureRun({ trainTickets: 1, evalTickets: 1 }), {
      name: 'UserError',
      message: /stream TICKETS_test/,
    });
  });
});
