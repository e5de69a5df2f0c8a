import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { GroupLimit } from '../../actor/group-limit.js';
import { leaseOf } from '../../actor/lease.js';
import { encode } from '../../shared/wire/codec.js';
import { ActorLease, type EngineLease } from '../../shared/wire/actor-lease.js';

/** The lease of an actor whose follower is in this state. */
function lease(policies: object, servers: EngineLease[] = []): ActorLease | undefined {
  const idleSeconds = { ticket: 0, policy: 0, publish: 0 };
  return leaseOf(
    {
      ...{
        actor: 'actor-0',
        sampler: { kind: 'onnx', limit: new GroupLimit(8), servers },
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
  it('the lease of an actor with many servers that refuse a version fits into its 16 KiB', () => {
    const figures = { difference: 1.2345, band: 0.0123, mean: 0.123, meanBand: 0.01234 };
    const refused = { version: 12_345, attempts: 99, place: 31, closerTo: 12_344, ...figures };
    const server = (i: number): EngineLease => ({
      url: `http://engine-${i}.inference.svc.cluster.local:8000`,
      ...{ release: '0.33.0', trouble: 'x'.repeat(512), refused, adapters: 9, slots: 9 },
      ...{ running: 256, waiting: 256, kvUsage: 0.987 },
    });
    const [one] = lease({ oldestInUse: 3 }, [server(0)])!.engines!;
    assert.equal(one!.trouble!.length, 512);
    const many = lease(
      { oldestInUse: 3 },
      Array.from({ length: 32 }, (_, i) => server(i)),
    )!;
    assert.equal(many.engines!.length, 32);
    assert(encode(ActorLease, many).byteLength <= 16_384);
  });

  it('an actor without a version has no lease, unless it asks for an adapter by it', () => {
    assert.equal(lease({ awaitsAdapter: false }), undefined);
    const asking = ActorLease.parse(lease({ awaitsAdapter: true }));
    assert.deepEqual([asking.sampler, asking.version], ['onnx', undefined]);
    assert.equal(lease({ oldestInUse: 3 })?.version, 3);
  });
});
