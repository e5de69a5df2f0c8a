import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { RunEvent } from '../../shared/wire/run-event.js';
import { startsEven, TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { until } from '../support/waiting.js';

const place = TrainingPlace.shared();

type Claim = (logprob: number, token: number, rollout: number) => number;

/** Whether the liar answers a ticket: every third, at the first attempt. */
function isLie({ order, attempt, split }: RolloutGroup['ticket']): boolean {
  return split === 'train' && order % 3 === 0 && attempt === 0;
}

/** The group as the liar sends it. */
function told(group: RolloutGroup, claim: Claim): RolloutGroup {
  if (!isLie(group.ticket)) return group;
  const rollouts = group.rollouts.map((rollout, r) => ({
    ...rollout,
    behaviorLogprobs: rollout.behaviorLogprobs.map((logprob, t) => claim(logprob, t, r)),
  }));
  return { ...group, actor: 'liar', rollouts };
}

/**
 * A run with an honest actor and one that claims something else and holds each of its groups back
 * until a newer version is out, so that none of them is at staleness 0.
 */
async function runWithLiar(
  ground: TrainingGround,
  claim: Claim,
  flags: Readonly<Record<string, string | number>>,
) {
  const learner = ground.learner({ 'max-steps-off-policy': 2, ...flags });
  ground.actor('honest');
  const lies: number[] = [];
  await ground.startScoring({
    alter: (group) => {
      if (isLie(group.ticket)) lies.push(group.ticket.order);
      return told(group, claim);
    },
    before: async (order) => {
      if (!lies.includes(order)) return;
      const { broker } = ground;
      const found = (await broker.policy.current())?.version ?? 0;
      const isQuarantined = async () =>
        (await broker.policy.current())?.quarantined?.includes('liar') ?? false;
      await until(async () => {
        return ((await broker.policy.current())?.version ?? 0) > found || (await isQuarantined());
      });
    },
  });
  const code = await learner.exitCode();
  const quarantines: Extract<RunEvent, { kind: 'quarantine' }>[] = [];
  const past = ground.broker.events.past(new AbortController().signal);
  for await (const event of past) if (event.kind === 'quarantine') quarantines.push(event);
  return { learner, code, quarantines };
}

describe('a run with one lying actor', { timeout: 240_000 }, () => {
  it('a run continues when stale groups of a liar claim logprobs of -50', async () => {
    await using ground = await TrainingGround.at(place(), 'lies');
    const { learner, code, quarantines } = await runWithLiar(ground, () => -50, {
      'max-steps': 9,
      'stop-patience': 3,
    });
    assert.equal(code, 0, learner.errors + learner.tail);
    assert.deepEqual(
      quarantines.map(({ actor }) => actor),
      ['liar'],
    );
    assert.equal((await ground.metrics()).length, 9);
  });

  it('a run continues when nearly all answers are wrong ones of a liar', async () => {
    await using ground = await TrainingGround.at(place(), 'wrong');
    const learner = ground.learner({
      'max-steps': 10,
      'stop-patience': 3,
      'learning-rate': 0.002, // so that answers stay diverse
    });
    ground.actor('honest');
    // Seven of eight tickets from the 20th on, with only wrong rollouts.
    const isWrong = ({ order, split }: RolloutGroup['ticket']) =>
      split === 'train' && order >= 20 && order % 8 !== 0;
    await ground.startScoring({
      alter: (group) => (isWrong(group.ticket) ? { ...group, actor: 'liar' } : group),
      isCorrect: (rollout, _, ticket) => !isWrong(ticket) && startsEven(rollout),
    });
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const metrics = await ground.metrics();
    assert.equal(metrics.length, 10);
    assert(metrics.at(-1)!['env/all/reward/total']! < 0.2);
    assert(metrics.at(-1)!['env/all/reward/upper']! > 0.4);
  });

  it('a run restores its checkpoint after a lie decided a step, and remembers the liar', async () => {
    await using ground = await TrainingGround.at(place(), 'damage');
    // Once it could be honest.
    const oneOfMany: Claim = (logprob, token, rollout) =>
      token === 0 && rollout === 0 ? -25 : logprob;
    const { learner, code, quarantines } = await runWithLiar(ground, oneOfMany, {
      loss: 'importance_sampling',
      'max-steps': 8,
      'checkpoint-every-steps': 3,
    });
    assert.equal(code, 0, learner.errors + learner.tail);
    assert.deepEqual(
      quarantines.map(({ actor, why }) => [actor, why]),
      [['liar', 'likelihood']],
    );
    const restored = learner.log.filter(({ msg }) => /restoring the run/.test(String(msg)));
    assert.equal(restored.length, 1);
    assert.match(String(restored[0]!['reason']), /^step \d+ followed the false logprobs of liar/);
    const metrics = await ground.metrics();
    assert.deepEqual(
      metrics.map(({ step }) => step),
      Array.from({ length: 8 }, (_, i) => i + 1),
    );
    // The next session knows it from the run's history.
    assert.equal(metrics.at(-1)!['actors/quarantined'], 1);
  });
});

describe('a run whose weights become infinite', { timeout: 240_000 }, () => {
  it('a run with infinite weights publishes none and ends as diverged with the previous checkpoint', async () => {
    await using ground = await TrainingGround.at(place(), 'infinite');
    const learner = ground.learner({
      'learning-rate': 1e39, // exceeds a float32
      'max-steps-off-policy': 0,
    });
    ground.actor('honest');
    await ground.startScoring();
    assert.equal(await learner.exitCode(), 3, learner.errors + learner.tail);
    assert.match(
      learner.errors,
      /training diverged at step 1: policy version 1 is not published: /,
    );
    assert.match(learner.errors, /lora_[AB]\.weight is not finite: element \d+ of \[\d+,\d+\] is/);
    assert.equal((await ground.broker.policy.current())?.version, 0);
    assert.equal((await ground.broker.ledger.read())?.step, 0);
  });
});
