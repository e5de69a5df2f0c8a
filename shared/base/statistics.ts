/** @param values [n]. @returns 0 for an empty list. */
export function sum(values: ArrayLike<number>): number {
  let total = 0;
  for (let i = 0; i < values.length; i++) total += values[i]!;
  return total;
}

/** @param values [n]. @returns NaN for an empty list. */
export function mean(values: ArrayLike<number>): number {
  return sum(values) / values.length;
}

/**
 * The q-quantile of sorted values, interpolated linearly between the two nearest ranks.
 *
 * @param sorted [n] in rising order.
 * @param q in [0, 1].
 * @returns NaN for an empty list.
 */
export function quantile(sorted: ArrayLike<number>, q: number): number {
  if (sorted.length === 0) return NaN;
  const rank = q * (sorted.length - 1);
  const below = Math.floor(rank);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below]! + (rank - below) * (sorted[above]! - sorted[below]!);
}

/** @param values [n] in any order. @returns the mean of the two middle ones if n is even; NaN for an empty list. */
export function median(values: readonly number[]): number {
  return quantile(
    values.toSorted((a, b) => a - b),
    0.5,
  );
}
