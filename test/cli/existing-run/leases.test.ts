import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { hasLearner, LeaseClock, usualRenewalMs } from '../../../cli/existing-run/leases.js';

/** Looks at a lease every second, and returns whether a learner leads by it each time. */
function looks(renewals: readonly (number | undefined)[], from = 1_000_000): boolean[] {
  const leases = new LeaseClock();
  return renewals.map((renewedAt, second) => {
    const at = from + 1_000 * second;
    const lease = renewedAt === undefined ? undefined : { v: 1 as const, holder: 'a', renewedAt };
    return hasLearner(leases.seen(lease, at), at);
  });
}

describe("the learner's lease, read on a machine whose clock differs", () => {
  it('a learner whose clock is behind counts as leading once it renews its lease', () => {
    assert.deepEqual(looks([7, 7, 2_507, 2_507]), [false, false, true, true]);
  });

  it('a learner that was killed does not count as leading longer because its clock was ahead', () => {
    const seen = looks(Array.from({ length: 33 }, () => 9_000_000));
    assert.deepEqual([seen[0], seen[30], seen[31]], [true, true, false]);
  });

  it('a learner that takes the lead while we look counts at once, whatever its clock says', () => {
    assert.deepEqual(looks([undefined, 7, undefined, 8]), [false, true, false, true]);
  });

  it('a learner with a longer lease, which it renews less often, counts as leading for longer', () => {
    const lease = { v: 1 as const, holder: 'a', renewedAt: 0, expiresMs: 600_000 };
    const ages = [100_000, 1_200_000, 1_200_001];
    assert.deepEqual(
      ages.map((at) => hasLearner(lease, at)),
      [true, true, false],
    );
    assert.equal(usualRenewalMs({ ...lease, expiresMs: 60_000 }), 12_000);
    assert.equal(usualRenewalMs(lease), 30_000);
  });

  it('a lease that is there at the first look is as old as it says', () => {
    assert.deepEqual(looks([999_000]), [true]);
    assert.deepEqual(looks([900_000]), [false]);
  });
});
