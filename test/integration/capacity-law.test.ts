import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { consume } from '../../shared/broker/consume.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { type Rollout, RolloutGroup } from '../../shared/wire/rollout-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { LawObserver } from '../support/law-observer.js';
import { silent } from '../support/log.js';
import { rollout, rolloutGroup } from '../support/messages.js';
import type { ServiceProcess } from '../support/service-process.js';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { gate, until } from '../support/waiting.js';

const limits = { timeout: 240_000 };
const place = TrainingPlace.shared();
const trained = (learner: ServiceProcess, steps: number) =>
  learner.says(({ msg, step }) => msg === 'step trained' && Number(step) >= steps);

describe('the capacity law, among actors that come, hang, die and go', limits, () => {
  it('the capacity law holds after every message', async () => {
    await using ground = await TrainingGround.at(place(), 'law');
    const law = { groupsPerBatch: 4, maxStepsOffPolicy: 2 };
    await using observer = new LawObserver(ground.broker, law);
    const learner = ground.learner({ 'max-steps-off-policy': 2 });
    await ground.shortenLeases(2);
    await ground.startScoring({ doomed: [3, 17] }); // two tickets die
    const delivers = (name: string) => until(() => observer.actors.has(name));

    const first = ground.actor('actor-0');
    await delivers('actor-0');
    const second = ground.actor('actor-1');
    await delivers('actor-1');
    await first.stop('SIGKILL');
    const third = ground.actor('actor-2');
    await delivers('actor-2');
    second.hold('SIGSTOP'); // its tickets' leases expire
    const { step } = learner.log.findLast(({ msg }) => msg === 'step trained')!;
    await trained(learner, Number(step) + 4);
    second.hold('SIGCONT'); // others may have delivered the same tickets already
    ground.actor('actor-3');
    await delivers('actor-3');
    assert.equal(await third.stop('SIGTERM'), 0);
    await trained(learner, Number(step) + 8);
    assert.equal(await learner.stop('SIGTERM'), 0, learner.errors + learner.tail);

    await observer.conclude();
    assert.equal(observer.leastRoom, 0); // the capacity was fully used
    const { groups, staleness, steps } = Summary.parse(await ground.summary());
    assert.deepEqual([groups.trained, groups.stale, groups.dead], [steps * 4, 0, 2]);
    assert.equal(
      groups.issued,
      groups.trained + groups.skippedZeroVariance + groups.dead + groups.outstanding,
    );
    assert(groups.outstanding <= 12 && staleness.max <= 2);
  });
});

describe('a learner whose window drops', limits, () => {
  it('a dropping learner trains without a late group and refuses it when it arrives', async () => {
    await using ground = await TrainingGround.at(place(), 'drops');
    const learner = ground.learner({ 'max-steps': 6, 'window-policy': 'drop' });

    // It delivers its group when the learner no longer waits.
    const slow = await slowActor(ground, () =>
      [2, 3, 4, 5].map((token) =>
        rollout(1, { tokens: Int32Array.of(token), behaviorLogprobs: Float32Array.of(-2) }),
      ),
    );
    ground.actor('actor-0');
    await ground.startScoring();
    await trained(learner, 3); // by version 2: one step more than the group's version 0 allows
    await slow.deliver();

    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const refused = learner.log.find(({ reason }) => reason === 'stale');
    assert.deepEqual([refused?.['order'], refused?.['outcome']], [0, 'reissue']);
    const { groups, staleness } = Summary.parse(await ground.summary());
    assert.deepEqual([groups.trained, groups.stale, groups.outstanding], [6 * 4, 1, 0]);
    assert.equal(groups.issued, 6 * 4 + 1 + groups.skippedZeroVariance);
    assert(staleness.max <= 1);
  });
});

describe('a learner whose bound holds for tokens', limits, () => {
  it('a learner trains on a slow group of several versions without its tokens beyond the bound', async () => {
    await using ground = await TrainingGround.at(place(), 'tokens');
    const bound = 4;
    const learner = ground.learner({
      ...{ 'max-steps': 8, 'max-steps-off-policy': bound, 'window-policy': 'tokens' },
    });
    const { broker } = ground;

    // It begins with version 0, and ends when that is beyond the bound.
    const slow = await slowActor(ground, (newest) => {
      assert(newest > bound);
      return [2, 3, 4, 5].map((token) =>
        rollout(3, {
          tokens: Int32Array.of(token, 0, 0),
          behaviorLogprobs: Float32Array.of(-2, -2, -2),
          versions: [
            [0, 2],
            [newest, 1],
          ],
        }),
      );
    });
    ground.actor('actor-0');
    await ground.startScoring();
    await until(async () => (await broker.policy.current())!.version > bound); // training may be ahead of it
    await slow.deliver();

    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const { groups, staleness } = Summary.parse(await ground.summary());
    assert.deepEqual([groups.trained, groups.stale, groups.dead], [8 * 4, 0, 0]);
    assert(staleness.max <= bound); // of what was trained on
    const steps = await ground.metrics();
    const masked = steps.map((metrics) => metrics['stale_tokens/count']);
    assert.deepEqual(
      masked.filter((count) => count !== 0),
      [4 * 2],
    );
  });
});

/**
 * An actor that has taken the first ticket of a run and holds its answer back until the test sends it.
 *
 * @param rollouts of its group, given the newest version at that time.
 */
async function slowActor(
  { broker }: TrainingGround,
  rollouts: (newest: number) => Rollout[],
): Promise<{ deliver: () => Promise<void> }> {
  await new RunConfigStore(broker).wait(AbortSignal.timeout(60_000));
  const [taken, late] = [gate(), gate()];
  const stop = new AbortController();
  const { signal } = stop;
  const options = { signal, log: silent, stage: 'actor', concurrency: 1 };
  const sampling = consume(broker, 'tickets.train', Ticket, options, async ({ value: ticket }) => {
    assert.equal(ticket.order, 0);
    taken.open();
    await late.opened;
    const newest = (await broker.policy.current())!.version;
    const group = rolloutGroup({ ticket, rollouts: rollouts(newest) });
    const subject = broker.names.subjects.rollouts('slow');
    const msgId = `${ticket.ticketId}.0`;
    await broker.publish(subject, RolloutGroup, group, { msgId, signal });
    stop.abort();
  });
  await taken.opened;
  return {
    deliver: () => {
      late.open();
      return sampling;
    },
  };
}
