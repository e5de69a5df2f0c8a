import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { consume } from '../../shared/broker/consume.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { messageIdOf } from '../../shared/wire/ticket-ids.js';
import { answers } from '../reward-service/values.js';
import { prepareGround } from '../support/actor-run.js';
import { limitToPresentBytes } from '../support/byte-limit.js';
import { silent } from '../support/log.js';
import { rollout, rolloutGroup, scoredGroup } from '../support/messages.js';
import { hasJoined, ScoringGround } from '../support/scoring-ground.js';
import { watchesMemory, type ServiceProcess } from '../support/service-process.js';
import { TrainingGround } from '../support/training-ground.js';
import { until } from '../support/waiting.js';

/*
 * Each process reports its live memory twice: before the overload, and at its height or after
 * it. A process that kept the groups received in between would hold at least their bytes more.
 * Garbage does not count, so a bound of half these bytes leaves enough for the groups in progress.
 */
const limits = { timeout: 300_000 };
const bytesPerToken = 8; // an id and a logprob
const bytesPerRollout = 800; // for any number of tokens: two arrays and their metadata
const isBlocked = ({ msg, failure }: Record<string, unknown>) =>
  msg === 'waiting to try again' && failure === 'full';

async function assertFlat(process: ServiceProcess, before: number, passed: number) {
  const grown = (await process.liveBytes()) - before;
  assert(grown < passed / 2, `${grown} bytes more after ${passed} had come`);
}

describe('the memory of an overloaded run', limits, () => {
  it('the learner of an overloaded run does not hold groups that no checkpoint covers yet', async () => {
    await using ground = await TrainingGround.prepare('flat', watchesMemory);
    const { broker } = ground;
    const [groupSize, length] = [16, 1_000];
    const learner = ground.learner({ 'group-size': groupSize, 'max-tokens': length });
    const stopping = new AbortController();
    const { signal } = stopping;
    // No group has variance: each is skipped, requested again, and never part of a step.
    let [wanted, sent] = [20, 0];
    const answer = async ({ value: ticket }: { readonly value: Ticket }) => {
      await until(() => sent < wanted || signal.aborted);
      sent++;
      const tokens = new Int32Array(length).fill(1);
      const sample = rollout(length, { tokens, versions: [[ticket.issuedAtVersion, length]] });
      const rollouts = Array.from({ length: groupSize }, () => sample);
      const scored = scoredGroup({ group: rolloutGroup({ ticket, rollouts }) });
      const msgId = messageIdOf(ticket);
      const subject = broker.names.subjects.scored('train');
      await broker.publish(subject, ScoredGroup, scored, { msgId, signal });
    };
    await new RunConfigStore(broker).wait(signal);
    const options = { signal, log: silent, stage: 'actor', concurrency: 1 };
    const answering = consume(broker, 'tickets.train', Ticket, options, answer);
    const dropped = 'rl_groups_dropped_total{stage="intake",reason="zero_variance"}';
    await until(async () => (await learner.metric(dropped)) === wanted);
    const before = await learner.liveBytes();

    wanted += 100;
    await until(async () => (await learner.metric(dropped)) === wanted);
    assert.equal((await broker.depths()).scored, wanted); // none of them is settled
    await assertFlat(learner, before, 100 * groupSize * length * bytesPerToken);
    stopping.abort();
    await answering;
  });

  it('an overloaded reward service holds only the groups in progress, not waiting or finished ones', async () => {
    await using ground = await ScoringGround.prepare();
    await using run = await ground.begin(30_000);
    const { broker, heldOut } = run;
    const [groupSize, length] = [16, 500];
    const sampling = { temperature: 1, maxTokens: length };
    await new RunConfigStore(broker).put({ ...ground.config, groupSize, sampling });
    const replica = run.start('reward-0', watchesMemory);
    await replica.says(hasJoined);
    let sent = 0;
    const send = async (count: number) => {
      const text = heldOut.witness.padEnd(length - 1);
      const texts = Array.from({ length: groupSize }, () => text);
      for (const end = sent + count; sent < end; sent++) {
        const samplingParams = { ...sampling, seed: 1 };
        const named = { ticketId: `t-${sent}`, order: sent, samplingParams };
        const ticket: Partial<Ticket> = { ...named, split: 'eval', pinnedVersion: 3 };
        await run.publish(answers(ground.tokenizer, texts, ticket, heldOut.problem), `g-${sent}`);
      }
    };
    await send(20);
    await until(() => run.scored.length === sent);
    const before = await replica.liveBytes();

    const passed = 200 * groupSize * length * bytesPerToken;
    {
      await using _full = await limitToPresentBytes(broker, broker.names.streams.scored);
      await send(200);
      await replica.says(isBlocked);
      await assertFlat(replica, before, passed);
    }
    await until(() => run.scored.length === sent);
    await until(async () => (await broker.depths()).rollouts === 0);
    await assertFlat(replica, before, passed);
  });

  it('an overloaded actor holds only the groups that it samples, not delivered ones', async () => {
    await using ground = await prepareGround();
    await using run = await ground.startRun();
    const { broker, groups } = run;
    await run.publish(0);
    await using actor = run.actor('actor-0', watchesMemory);
    const groupSize = 512; // with few tokens each, so that they are sampled soon
    let issued = 0;
    const issue = async (count: number) => {
      for (const end = issued + count; issued < end; issued++) {
        await run.issue({
          groupSize,
          samplingParams: { temperature: 1, maxTokens: 4, seed: issued },
        });
      }
    };
    const samplesNothing = () => until(async () => (await actor.metric('rl_actor_inflight')) === 0);
    await issue(10);
    await until(() => groups.length === issued);
    const before = await actor.liveBytes();

    const passed = 50 * groupSize * bytesPerRollout;
    {
      await using _full = await limitToPresentBytes(broker, broker.names.streams.rollouts);
      await issue(50);
      await actor.says(isBlocked);
      await samplesNothing(); // all of its groups wait too
      await assertFlat(actor, before, passed);
    }
    await until(() => groups.length === issued);
    await assertFlat(actor, before, passed);
  });
});
