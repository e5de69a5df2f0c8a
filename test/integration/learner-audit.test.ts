import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { RunEvent } from '../../shared/wire/run-event.js';
import type { GroupRequest } from '../../shared/model/rollout-draft.js';
import { prepareGround } from '../support/actor-run.js';
import { runAlteredActor } from '../support/altered-actor.js';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { until } from '../support/waiting.js';

const place = TrainingPlace.shared();

/** For every third ticket, the logprobs that an actor at another temperature would claim. */
function tampered(group: RolloutGroup): RolloutGroup {
  const { order, attempt, split } = group.ticket;
  if (split !== 'train' || order % 3 !== 0 || attempt > 0) return group;
  const rollouts = group.rollouts.map((rollout) => ({
    ...rollout,
    behaviorLogprobs: rollout.behaviorLogprobs.map((logprob) => 1.5 * logprob),
  }));
  return { ...group, actor: 'tamperer', rollouts };
}

describe('a learner that audits its actors', { timeout: 240_000 }, () => {
  it('the audit quarantines a tampering actor, and others answer its tickets', async () => {
    await using ground = await TrainingGround.at(place(), 'audited');
    const flags = { 'max-steps': 12, 'max-steps-off-policy': 0, 'checkpoint-every-steps': 4 };
    const learner = ground.learner(flags);
    ground.actor('honest');
    const trainedBy = new Map<number, string>();
    await ground.startScoring({
      alter: (group) => {
        const sent = tampered(group);
        trainedBy.set(group.ticket.order, sent.actor);
        return sent;
      },
    });
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);

    const quarantines: Extract<RunEvent, { kind: 'quarantine' }>[] = [];
    const past = ground.broker.events.past(new AbortController().signal);
    for await (const event of past) if (event.kind === 'quarantine') quarantines.push(event);
    assert.equal(quarantines.length, 1);
    const { actor, why, gap, bound } = quarantines[0]!;
    assert.deepEqual([actor, why, gap > bound], ['tamperer', 'likelihood', true]);
    assert.equal((await ground.broker.policy.current())?.quarantined?.join(), 'tamperer');

    const metrics = await ground.metrics();
    assert.equal(metrics.length, 12);
    const last = metrics.at(-1)!;
    assert.equal(last['actors/quarantined'], 1);
    assert(last['dropped/cut/quarantined']! >= 1);
    // The other actor answered its last tickets.
    const lastOfIts = Math.max(...[...trainedBy.keys()].filter((order) => order % 3 === 0));
    assert.equal(trainedBy.get(lastOfIts - 3), 'honest');

    const restartedAt = Date.now();
    const restarted = ground.learner({ ...flags, 'max-steps': 13 });
    for await (const manifest of ground.broker.policy.watch(new AbortController().signal)) {
      if (manifest.publishedAt < restartedAt) continue;
      assert.deepEqual(manifest.quarantined, ['tamperer']); // from the first manifest on
      break;
    }
    assert.equal(await restarted.exitCode(), 0, restarted.errors + restarted.tail);
  });

  it('the audit quarantines an actor that samples at a wrong temperature', async () => {
    await using ground = await TrainingGround.at(place(), 'hot');
    const learner = ground.learner({ 'max-steps-off-policy': 0 });
    ground.actor('honest');
    await ground.startScoring();
    const stop = new AbortController();
    const alter = (request: GroupRequest) => ({
      ...request,
      temperature: 1.5 * request.temperature,
    });
    const { broker } = ground;
    const hot = { name: 'hot', modelDir: ground.model.path, alter };
    const sampling = runAlteredActor(broker, hot, stop.signal);
    await until(async () => (await broker.policy.current())?.quarantined !== undefined);
    stop.abort();
    await sampling;
    assert.deepEqual((await broker.policy.current())?.quarantined, ['hot']);
    assert.equal(await learner.stop('SIGTERM'), 0, learner.errors + learner.tail);
  });

  it('the audit quarantines no actor of an honest fleet', async () => {
    await using ground = await TrainingGround.at(place(), 'honest');
    const learner = ground.learner({ 'max-steps': 12 });
    for (const name of ['actor-0', 'actor-1']) ground.actor(name);
    await ground.startScoring();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    assert.deepEqual(
      (await ground.metrics()).map((line) => line['actors/quarantined']),
      Array.from({ length: 12 }, () => 0),
    );
  });
});

describe('an actor that the manifest calls quarantined', { timeout: 120_000 }, () => {
  it('a quarantined actor reports it and leaves the tickets to others', async () => {
    await using ground = await prepareGround();
    await using run = await ground.startRun();
    await run.publish(0);
    await using broken = run.actor('broken');
    await run.issue({});
    await until(() => run.groups.length === 1);
    await run.publish(1, { quarantined: ['broken'] });
    await broken.says(({ msg }) => /has quarantined this actor/.test(String(msg)));
    const { status, body } = await broken.ask('/readyz');
    assert.equal(status, 503);
    assert.match(body, /quarantined/);
    await using _other = run.actor('other');
    for (let i = 0; i < 3; i++) await run.issue({});
    await until(() => run.groups.length === 4);
    assert.deepEqual(
      run.groups.map(({ actor }) => actor),
      ['broken', 'other', 'other', 'other'],
    );
    assert.equal(await broken.stop('SIGTERM'), 0);
  });
});
