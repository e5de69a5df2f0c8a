import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { StatusReport } from '../../cli/status/report.js';
import { headers } from 'nats';
import type { Broker } from '../../shared/broker/broker.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { ActorLease } from '../../shared/wire/actor-lease.js';
import { encode } from '../../shared/wire/codec.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { GuardedServer } from '../support/guarded-server.js';
import { actorLease, checkpoint, evalResult, runConfig, ticket } from '../support/messages.js';
import { runOffbeat } from '../support/offbeat.js';
import { never } from '../support/waiting.js';

const run = 'guarded';

describe('offbeat status, on a server that wants keys', { timeout: 120_000 }, () => {
  let server: GuardedServer;
  let learner: Broker;
  let actor: Broker;

  before(async () => {
    const isActor = { role: 'actor', actor: 'actor-0' } as const;
    server = await GuardedServer.start([{ role: 'learner' }, { role: 'observer' }, isActor]);
    learner = await server.connect({ role: 'learner' });
    actor = await server.connect(isActor);
  });
  after(async () => {
    await learner[Symbol.asyncDispose]();
    await actor[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });

  const status = (...words: string[]) => {
    const place = [`--nats-url=${server.nats.url}`, `--nats-keys=${server.nats.keyFolder}`];
    return runOffbeat(['status', '--run', run, ...place, ...words], server.folder);
  };
  const report = async (): Promise<StatusReport> => {
    const { out, err, code } = await status('--json');
    assert.equal(code, 0, err);
    return JSON.parse(out) as StatusReport;
  };

  it('offbeat status reports a missing run', async () => {
    const { code, err } = await status();
    assert.deepEqual([code, err], [2, `the NATS server knows no run ${run}\n`]);
  });

  it('offbeat status reports a run that is being set up', async () => {
    await learner.ensureRun({ trainTickets: 8, evalTickets: 8 });
    const { phase, version, actors, deadLetters } = await report();
    assert.deepEqual([phase, version, actors.length, deadLetters.count], ['preparing', null, 0, 0]);
  });

  it('offbeat status reports versions, queues, actors, evaluation and dead letters of a training run', async () => {
    await new RunConfigStore(learner).put(runConfig({ run, maxStepsOffPolicy: 2 }));
    await using _leadership = await learner.ledger.lead('learner-7', never);
    const now = Date.now();
    for (const version of [0, 1, 2]) {
      const samplerPath = `tinker://run/sampler_weights/${version}`;
      const quarantined = ['actor-9'];
      await learner.policy.publish({ version, samplerPath, smallestUsefulVersion: 0, quarantined });
      if (version === 0) continue;
      const metrics = {
        'env/all/reward/total': 0.5,
        'env/all/correct': 0.25 * version,
        'staleness/mean': 1.5,
        'staleness/max': 2,
        'scored/rollouts': 600,
        seconds: 10,
        publish_lag: 1, // at the time of the step; its version has been published since
        groups_awaiting_checkpoint: 2,
        'idle/groups': 0,
        'actors/live': 1,
        'actors/idle_seconds/ticket': 5 * version,
      };
      const at = now - 10_000 + 10_000 * (version - 1);
      await learner.events.emit({ v: 1, kind: 'step', at, step: version, version, metrics });
    }
    const result = evalResult({ version: 1 });
    await learner.events.emit({ v: 1, kind: 'eval', at: now - 60_000, result });
    const lastSeenAt = Date.now() + 60_000; // still live when a slow machine checks
    await actor.actors.renew(actorLease({ version: 1, groups: 17, inFlight: 3, lastSeenAt }));
    for (const order of [0, 1, 2]) {
      const issued = ticket({ ticketId: `t-${order}`, order });
      const options = { msgId: issued.ticketId, signal: never };
      await learner.publish(learner.names.subjects.tickets('train'), Ticket, issued, options);
    }
    const data = new Uint8Array([0xc1]);
    const subject = learner.names.subjects.rollouts('actor-0');
    await learner.deadLetters.store('learner', 'not MessagePack', { subject, data });

    const seen = await report();
    assert.deepEqual(
      [seen.phase, seen.learner?.holder, seen.step, seen.version],
      ['training', 'learner-7', 2, 2],
    );
    assert.deepEqual([seen.solved, seen.rolloutsPerSecond], [0.5, 60]);
    assert.deepEqual(seen.staleness, { mean: 1.5, max: 2, bound: 2 });
    assert.deepEqual([seen.evaluation?.version, seen.evaluation?.greedy], [1, 0.5]);
    const [tickets] = seen.queues;
    assert.deepEqual([tickets?.name, tickets?.waiting, tickets?.inHand], ['tickets.train', 3, 0]);
    const [only] = seen.actors;
    assert.deepEqual(
      [only?.actor, only?.version, only?.behind, only?.groups, only?.isLive],
      ['actor-0', 1, 1, 17, true],
    );
    assert.match(
      seen.waits?.text ?? '',
      /^the actors wait 50 % of the time for tickets: the learner/,
    );
    assert.equal(seen.publishLag, 0);
    assert.deepEqual(
      [seen.deadLetters.count, seen.deadLetters.newest?.reason],
      [1, 'not MessagePack'],
    );

    const { out } = await status();
    assert.match(out, /^run guarded is training; learner learner-7, seen \d+ s ago$/m);
    assert.match(out, /^ {2}step 2 {2}version 2, published \d+ s ago$/m);
    assert.match(out, /^tickets\.train +3 +0 +\d+ s$/m);
    assert.match(out, /^actor-0 +1 +1 +17 +3\/8 {2}live$/m);
    assert.match(out, /^1 dead letter, the newest \d+ s ago \(learner\): not MessagePack$/m);
  });

  it('offbeat status still knows the newest step after an hour in which a ticket is held', async () => {
    const held = { split: 'train', tickets: 1, withdrawn: 0, longestSeconds: 3_600 } as const;
    for (let i = 0; i < 360; i++) {
      const at = Date.now();
      await learner.events.emit({ v: 1, at, kind: 'held', ...held, limitSeconds: 7_200 });
    }
    const { step, solved, waits } = await report();
    assert.deepEqual([step, solved], [2, 0.5]);
    assert.match(waits?.text ?? '', /^the actors wait 50 % of the time for tickets/);
  });

  it('offbeat status prints text of actors without escape codes', async () => {
    const { js, names } = actor.link;
    const hostile = '\x1b[2J\x9b2J';
    const fields = headers();
    fields.set('Offbeat-Reason', hostile);
    await js.publish(names.subjects.dead('actor', 'actor-0'), new Uint8Array(), {
      headers: fields,
    });
    const engine = { url: 'http://gpu-0:8000', trouble: hostile, adapters: 0, slots: 6 };
    const lease = actorLease({ actor: 'actor-0', lastSeenAt: Date.now(), engines: [engine] });
    await js.publish(`$KV.${names.buckets.actors}.actor-0`, encode(ActorLease, lease));
    for (const { out } of [await status(), await status('--json')]) {
      assert.equal(out.split('\\u001b[2J\\u009b2J').length, 3); // the reason and the engine's trouble
      assert.doesNotMatch(out.replaceAll('\n', ''), /\p{Cc}/u);
    }
  });

  it('offbeat status reports a run without a leader and the end of a run, which also ends --watch', async () => {
    await learner.ledger.write(checkpoint({ step: 2, version: 2 }));
    assert.equal((await report()).phase, 'stopped');
    const summary = { run, steps: 2, reason: 'max_steps' };
    await learner.events.emit({ v: 1, kind: 'end', at: Date.now() + 1, summary });
    const { code, out } = await status('--watch', '--json');
    assert.equal(code, 0);
    const looks = out.trimEnd().split('\n');
    assert.deepEqual(
      looks.map((line) => (JSON.parse(line) as StatusReport).phase),
      ['ended'],
    );
    const text = (await status()).out;
    assert.match(text, /^run guarded has ended: all its steps are done$/m);
    assert.doesNotMatch(text, /unpublished|silent/);
  });

  it('offbeat status makes only requests that an observer may make', async () => {
    assert.deepEqual(await server.refusals(), []);
  });
});
