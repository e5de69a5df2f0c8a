import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { GroupLimit } from '../../actor/group-limit.js';
import { leaseOf } from '../../actor/lease.js';
import { ActorLease } from '../../shared/wire/actor-lease.js';

/** The lease of an actor whose follower is in this state. */
function lease(policies: object): ActorLease | undefined {
  const idleSeconds = { ticket: 0, policy: 0, publish: 0 };
  return leaseOf(
    {
      ...{
        actor: 'actor-0',
        sampler: { kind: 'onnx', limit: new GroupLimit(8), servers: [] },
        groups: 0,
        abandoned: {},
      },
      activity: { sampling: 0, idleSeconds },
      policies: { oldestInUse: undefined, firstToken: undefined, refused: undefined, ...policies },
    },
    5,
  );
}

describe('the lease of an actor', () => {
  it('an actor without a version has no lease, unless it asks for an adapter by it', () => {
    assert.equal(lease({ awaitsAdapter: false }), undefined);
    const asking = ActorLease.parse(lease({ awaitsAdapter: true }));
    assert.deepEqual([asking.sampler, asking.version], ['onnx', undefined]);
    assert.equal(lease({ oldestInUse: 3 })?.version, 3);
  });
});
