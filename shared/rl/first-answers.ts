import { rewardCounts } from './advantages.js';

/**
 * Whether the first answers of a group all earn the same, so that the others are not worth sampling.
 *
 * @param exactRewards [n] as `isUniform` takes them, in the order in which they were sampled; n ≥ `first`.
 * @param first k; 0: groups are sampled whole, and none agrees.
 * @throws {RangeError} if a reward is not a fraction.
 */
export function firstAgree(exactRewards: readonly string[], first: number): boolean {
  return first > 0 && rewardCounts(exactRewards.slice(0, first)).length === 1;
}

/**
 * The weight of a group that went on because its first answers differed: 1 / (1 - q), where q is the share of the
 * choices of k of its n answers that all earn the same, Σ C(c, k) / C(n, k) over the rewards with c answers each.
 *
 * The answers of a group are independent draws, so each order of them is equally likely, and q is the probability that
 * a group with these answers was given up. So the mean of weight times advantages is that of groups that are
 * all sampled whole: the step keeps its direction and its length, problem by problem, and only its variance grows.
 * Source: Horvitz and Thompson 1952, with each group as a unit that is kept with probability 1 - q.
 *
 * @param exactRewards [n] as `isUniform` takes them; not all equal.
 * @param first k, at least 2; 0: the weight is 1.
 * @throws {RangeError} if a reward is not a fraction, or the group is never kept.
 */
export function continuationWeight(exactRewards: readonly string[], first: number): number {
  if (first === 0) return 1;
  const total = exactRewards.length;
  // Of a reward with c answers, Π (c - i) / (n - i) is the probability that k draws without return all have it.
  const agreeing = rewardCounts(exactRewards).reduce((sum, count) => {
    let probability = 1;
    for (let i = 0; i < first; i++) probability *= (count - i) / (total - i);
    return sum + (count < first ? 0 : probability);
  }, 0);
  if (agreeing >= 1) throw new RangeError('continuationWeight: the group is never kept');
  return 1 / (1 - agreeing);
}
