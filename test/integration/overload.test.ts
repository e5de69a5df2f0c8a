import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { consume } from '../../shared/broker/consume.js';
import { ticketBound } from '../../shared/rl/capacity.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { brokerOn } from '../support/broker.js';
import { LawObserver } from '../support/law-observer.js';
import { recordingLog, silent } from '../support/log.js';
import { rolloutGroup } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import type { ServiceProcess } from '../support/service-process.js';
import { SmallDisk } from '../support/small-disk.js';
import { TrainingGround } from '../support/training-ground.js';
import { gate, until } from '../support/waiting.js';

const limits = { timeout: 600_000 };
const law = { groupsPerBatch: 4, maxStepsOffPolicy: 1 };
const bound = ticketBound(law.maxStepsOffPolicy, law.groupsPerBatch);
const steps = ({ log }: ServiceProcess) => log.filter(({ msg }) => msg === 'step trained').length;

describe('a run with one slow part', limits, () => {
  it('a run keeps at most the ticket budget in each queue while its learner is stopped', async () => {
    await using ground = await TrainingGround.prepare('slow-learner');
    const { broker } = ground;
    await using observer = new LawObserver(broker, law);
    const learner = ground.learner({ 'max-steps': 6, 'checkpoint-every-steps': 100 });
    await learner.says(({ msg }) => msg === 'published');
    ground.backend.hold('SIGSTOP'); // it has the first version, and trains nothing on top of it
    await ground.startScoring();
    for (const name of ['actor-0', 'actor-1', 'actor-2']) ground.actor(name);

    // Every ticket is answered, and only a skipped group frees a ticket.
    const standsStill = async () => {
      const { tickets, rollouts, scored } = await broker.depths();
      return tickets === 0 && rollouts === 0 && scored === bound + observer.ended;
    };
    await until(standsStill);
    assert.equal(observer.actors.size > 0, true);
    assert.equal(observer.leastRoom, 0);
    assert.equal(steps(learner), 0);

    ground.backend.hold('SIGCONT');
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    await observer.conclude(); // and there were never more
    const { groups } = Summary.parse(await ground.summary());
    assert.deepEqual([groups.trained, groups.stale, groups.dead], [24, 0, 0]);
  });

  it('a run keeps at most the ticket budget in each queue while no reward service runs', async () => {
    await using ground = await TrainingGround.prepare('slow-reward');
    const { broker } = ground;
    await using observer = new LawObserver(broker, law);
    const learner = ground.learner({ 'max-steps': 6 });
    await learner.says(({ msg }) => msg === 'published');
    for (const name of ['actor-0', 'actor-1', 'actor-2']) ground.actor(name);
    const scoring = gate();
    await ground.startScoring({ before: () => scoring.opened });

    await until(async () => {
      const { tickets, rollouts } = await broker.depths(); // a ticket is deleted once its group is stored
      return rollouts === bound && tickets === 0;
    });
    const { rollouts, scored } = await broker.depths();
    assert.deepEqual([rollouts, scored], [bound, 0]);
    assert.equal(observer.leastRoom, 0);

    scoring.open();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    await observer.conclude();
    const { groups } = Summary.parse(await ground.summary());
    assert.deepEqual([groups.trained, groups.stale, groups.dead], [24, 0, 0]);
  });
});

describe('a NATS server whose storage is used up', limits, () => {
  it('publishers report full NATS storage, lose nothing, and continue when there is space', async () => {
    await using server = await NatsServer.start({ maxFileStore: 400_000 });
    const { log, lines } = recordingLog();
    await using broker = await brokerOn(server, { log });
    // The byte limit is reached long before the message limit.
    await broker.ensureRun({ trainTickets: 64, evalTickets: 4 });
    const stopping = new AbortController();
    const { signal } = stopping;

    const total = 24;
    const sent: number[] = [];
    const sending = (async () => {
      for (let i = 0; i < total; i++) {
        const group = rolloutGroup({}, 2_000); // 32 kB
        group.ticket = { ...group.ticket, ticketId: `t-${i}`, order: i };
        const subject = broker.names.subjects.rollouts('actor-0');
        await broker.publish(subject, RolloutGroup, group, { msgId: `t-${i}`, signal });
        sent.push(i);
      }
    })();
    await until(() => lines.some(({ failure }) => failure === 'full'));
    assert(sent.length > 0 && sent.length < total);
    assert.match(
      String(lines.find(({ failure }) => failure === 'full')!['reason']),
      /^NATS has no storage left \(.*\); give it more \(max_file_store, /,
    );
    assert.equal((await broker.depths()).rollouts, sent.length);

    const received: number[] = [];
    const options = { signal, log: silent, stage: 'reward', concurrency: 2 };
    const consuming = consume(broker, 'rollouts', RolloutGroup, options, ({ value }) => {
      received.push(value.ticket.order);
      return Promise.resolve();
    });
    await sending;
    await until(async () => (await broker.depths()).rollouts === 0);
    assert.deepEqual(
      received.toSorted((a, b) => a - b),
      Array.from({ length: total }, (_, i) => i),
    );
    assert(lines.some(({ msg }) => msg === 'recovered'));
    stopping.abort();
    await consuming;
  });
});

describe('a run whose checkpoints have no room on the disk', limits, () => {
  it('a run on a full checkpoint disk keeps the previous checkpoint, waits, and continues when there is space', async (t) => {
    await using ground = await TrainingGround.prepare('disk');
    using disk = SmallDisk.at(ground.place.checkpoints, 4_000_000);
    if (disk === undefined) {
      t.skip('needs the right to mount a file system');
      return;
    }
    const { broker } = ground;
    const learner = ground.learner({ 'max-steps': 8, 'checkpoint-every-steps': 2 });
    await ground.startScoring();
    ground.actor('actor-0');
    await until(async () => ((await broker.ledger.read())?.step ?? 0) >= 2);
    disk.fill();
    const { reason } = await ground.backend.says(
      ({ msg }) => msg === 'disk full, waiting for room',
    );
    assert.match(String(reason), /no space left on device/);
    assert.match(
      (await ground.backend.ask('/readyz')).body,
      /^the disk is full: cannot write chec/,
    );

    disk.clear();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const restored = /restoring the run from|resuming from the last/;
    assert.deepEqual(
      learner.log.filter(({ msg }) => restored.test(String(msg))),
      [],
    );
    const { groups, steps: trained } = Summary.parse(await ground.summary());
    assert.deepEqual([trained, groups.trained], [8, 32]); // each once
  });
});
