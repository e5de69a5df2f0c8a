import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { consume } from '../../shared/broker/consume.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { gate, silent, until } from '../support/broker.js';
import { LawObserver } from '../support/law-observer.js';
import { rollout, rolloutGroup } from '../support/messages.js';
import type { ServiceProcess } from '../support/service-process.js';
import { TrainingGround } from '../support/training-ground.js';

const limits = { timeout: 240_000 };
const trained = (learner: ServiceProcess, steps: number) =>
  learner.says(({ msg, step }) => msg === 'step trained' && Number(step) >= steps);

describe('the capacity law, among actors that come, hang, die and go', limits, () => {
  it('the capacity law holds after every message', async () => {
    await using ground = await TrainingGround.prepare('law');
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
    await using ground = await TrainingGround.prepare('drops');
    const learner = ground.learner({ 'max-steps': 6, 'window-policy': 'drop' });
    const { broker } = ground;
    await new RunConfigStore(broker).wait(AbortSignal.timeout(60_000));

    // An actor that takes the first ticket and delivers its group when the learner no longer waits.
    const [taken, late] = [gate(), gate()];
    const stop = new AbortController();
    const { signal } = stop;
    const slow = consume(
      broker,
      'tickets.train',
      Ticket,
      { signal, log: silent, stage: 'actor', concurrency: 1 },
      async ({ value: ticket }) => {
        assert.equal(ticket.order, 0);
        taken.open();
        await late.opened;
        const rollouts = [2, 3, 4, 5].map((token) =>
          rollout(1, { tokens: Int32Array.of(token), behaviorLogprobs: Float32Array.of(-2) }),
        );
        const group = rolloutGroup({ ticket, rollouts });
        const msgId = `${ticket.ticketId}.0`;
        await broker.publish(broker.names.subjects.rollouts('slow'), RolloutGroup, group, {
          msgId,
          signal,
        });
        stop.abort();
      },
    );
    await taken.opened;
    ground.actor('actor-0');
    await ground.startScoring();
    await trained(learner, 3); // by version 2: one step more than the group's version 0 allows
    late.open();
    await slow;

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
    await using ground = await TrainingGround.prepare('tokens');
    const bound = 4;
    const learner = ground.learner({
      ...{ 'max-steps': 20, 'max-steps-off-policy': bound, 'window-policy': 'tokens' },
    });
    const { broker } = ground;
    await new RunConfigStore(broker).wait(AbortSignal.timeout(60_000));

    // An actor that begins the first ticket with version 0, and ends it when that is beyond the bound.
    const [taken, late] = [gate(), gate()];
    const stop = new AbortController();
    const { signal } = stop;
    const slow = consume(
      broker,
      'tickets.train',
      Ticket,
      { signal, log: silent, stage: 'actor', concurrency: 1 },
      async ({ value: ticket }) => {
        assert.equal(ticket.order, 0);
        taken.open();
        await late.opened;
        const newest = (await broker.policy.current())!.version;
        assert(newest > bound);
        const rollouts = [2, 3, 4, 5].map((token) =>
          rollout(3, {
            tokens: Int32Array.of(token, 0, 0),
            behaviorLogprobs: Float32Array.of(-2, -2, -2),
            versions: [
              [0, 2],
              [newest, 1],
            ],
          }),
        );
        const group = rolloutGroup({ ticket, rollouts });
        const msgId = `${ticket.ticketId}.0`;
        await broker.publish(broker.names.subjects.rollouts('slow'), RolloutGroup, group, {
          msgId,
          signal,
        });
        stop.abort();
      },
    );
    await taken.opened;
    ground.actor('actor-0');
    await ground.startScoring();
    await until(async () => (await broker.policy.current())!.version > bound); // training may be ahead of it
    late.open();
    await slow;

    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const { groups, staleness } = Summary.parse(await ground.summary());
    assert.deepEqual([groups.trained, groups.stale, groups.dead], [20 * 4, 0, 0]);
    assert(staleness.max <= bound); // of what was trained on
    const steps = await ground.metrics();
    const masked = steps.map((metrics) => metrics['stale_tokens/count']);
    assert.deepEqual(
      masked.filter((count) => count !== 0),
      [4 * 2],
    );
  });
});
