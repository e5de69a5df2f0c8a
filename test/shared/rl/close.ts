import assert from 'node:assert/strict';

/** Equal to within rounding. */
export function assertClose(
  actual: ArrayLike<number>,
  expected: ArrayLike<number>,
  tolerance = 1e-12,
): void {
  assert.equal(actual.length, expected.length);
  for (let i = 0; i < expected.length; i++) {
    const gap = Math.abs(actual[i]! - expected[i]!);
    assert(gap <= tolerance, `[${i}] is ${actual[i]}, expected ${expected[i]}`);
  }
}
