import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { register } from 'prom-client';
import { UnackedGroups } from '../../../learner/groups/unacked-groups.js';

describe('the unacknowledged groups', () => {
  it('unacked groups count as awaiting a checkpoint once their tickets are consumed or replaced', async () => {
    const metric = async () => {
      const text = await register.getSingleMetricAsString('rl_groups_awaiting_checkpoint');
      return Number(text.trim().split(' ').at(-1));
    };
    const unacked = new UnackedGroups();
    for (const seq of [1, 2, 3]) {
      const lease = { seq, working: () => undefined, ack: () => Promise.resolve() };
      unacked.hold(lease, seq + 10, `m-${seq}`);
    }
    assert.deepEqual(
      unacked.countAwaiting((order) => order < 12),
      { groups_awaiting_checkpoint: 1 },
    );
    unacked.replace(3, 'm-3');
    assert.deepEqual(
      unacked.countAwaiting((order) => order < 12),
      { groups_awaiting_checkpoint: 2 },
    );
    assert.equal(await metric(), 2);
    await unacked.settle(unacked.covered((order) => order < 12));
    assert.equal(await metric(), 0);
  });

  it('unacked groups never acknowledge a message under the number of one that the server has lost', async () => {
    const acknowledged: string[] = [];
    const unacked = new UnackedGroups();
    const hold = (id: string, order: number) => {
      const ack = () => Promise.resolve(void acknowledged.push(id));
      return unacked.hold({ seq: 1, working: () => undefined, ack }, order, id);
    };
    assert(hold('lost', 10));
    const covered = unacked.covered(() => true);
    assert(hold('new', 11));
    unacked.replace(1, 'lost');
    await unacked.settle(covered);
    assert.deepEqual(acknowledged, []);
    assert.deepEqual(
      unacked.covered((order) => order === 10),
      [],
    );
    await unacked.settle(unacked.covered((order) => order === 11));
    assert.deepEqual(acknowledged, ['new']);
  });
});
