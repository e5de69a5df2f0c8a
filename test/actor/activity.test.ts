import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { register } from 'prom-client';
import { Activity, type IdleCause, measuredActivity } from '../../actor/activity.js';
import { GroupLimit } from '../../actor/group-limit.js';

/** An activity on a clock that the test moves, and the idle seconds that it reports. */
function watched() {
  const clock = { ms: 0 };
  const idle: Record<IdleCause, number> = { ticket: 0, policy: 0, publish: 0 };
  const activity = new Activity(
    () => clock.ms,
    (cause, seconds) => {
      idle[cause] += seconds;
    },
  );
  return { activity, idle, after: (seconds: number) => (clock.ms += seconds * 1_000) };
}

describe('the idle time of an actor', () => {
  it('idle time counts the time without sampling, by the cause of the wait', () => {
    const { activity, idle, after } = watched();
    after(1); // no ticket
    const waiting = activity.enter('policy');
    after(2);
    waiting[Symbol.dispose]();
    const sampling = activity.enter('sampling');
    after(4);
    sampling[Symbol.dispose]();
    const publishing = activity.enter('publish');
    after(8);
    publishing[Symbol.dispose]();
    after(16);
    activity.settle();
    assert.deepEqual(idle, { ticket: 17, policy: 2, publish: 8 });
  });

  it('idle time does not grow while any group is sampled', () => {
    const { activity, idle, after } = watched();
    using _sampling = activity.enter('sampling');
    using _waiting = activity.enter('policy');
    using _publishing = activity.enter('publish');
    after(5);
    activity.settle();
    assert.deepEqual(idle, { ticket: 0, policy: 0, publish: 0 });
    assert.equal(activity.sampling, 1);
  });

  it('idle time has a full stream as its cause rather than a missing policy', () => {
    const { activity, idle, after } = watched();
    using _waiting = activity.enter('policy');
    using _publishing = activity.enter('publish');
    after(3);
    activity.settle();
    assert.deepEqual(idle, { ticket: 0, policy: 0, publish: 3 });
  });

  it('idle time is exported for every cause, so that a mean over actors is over all of them', async () => {
    const activity = measuredActivity(new GroupLimit(1));
    using _sampling = activity.enter('sampling');
    const { values } = await register.getSingleMetric('rl_actor_idle_seconds_total')!.get();
    const others = values.filter(({ labels }) => labels['cause'] !== 'ticket');
    assert.deepEqual(
      others.map(({ labels, value }) => [labels['cause'], value]),
      [
        ['policy', 0],
        ['publish', 0],
      ],
    );
  });
});
