/** How many rollouts had each completion length, in tokens. */
export type LengthCounts = ReadonlyMap<number, number>;

/**
 * The Kolmogorov–Smirnov distance between two length distributions: the largest gap between their
 * cumulative shares. 0 when they agree; 1 when all of one is shorter than all of the other.
 *
 * Between the rollouts that were admitted and those that were trained on, it shows whether the
 * learner prefers what finishes first, which is what is short and easy.
 *
 * @returns 0 when either has no rollout yet.
 */
export function ksDistance(a: LengthCounts, b: LengthCounts): number {
  const totalA = total(a);
  const totalB = total(b);
  if (totalA === 0 || totalB === 0) return 0;

  const lengths = [...new Set([...a.keys(), ...b.keys()])].sort((x, y) => x - y);
  let shareA = 0;
  let shareB = 0;
  let distance = 0;
  for (const length of lengths) {
    shareA += (a.get(length) ?? 0) / totalA;
    shareB += (b.get(length) ?? 0) / totalB;
    distance = Math.max(distance, Math.abs(shareA - shareB));
  }
  return distance;
}

function total(counts: LengthCounts): number {
  return [...counts.values()].reduce((sum, count) => sum + count, 0);
}
