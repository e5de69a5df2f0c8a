/**
 * The effect of a crash on the version numbers. They only rise, so a restored learner publishes the
 * weights of version `to` again as `from`; the versions between belong to lost steps.
 */
export interface Rewind {
  readonly from: number; // greater than `to`
  readonly to: number;
}

/**
 * The number of steps between the policy in training and the oldest token of a group. A step trains one
 * batch and makes one version, with any number of optimizer steps.
 *
 * Without a rewind: the version in training minus the version of the oldest token. With rewinds the
 * versions are a tree, and the steps are counted along its branches: back from the sampled version to
 * the fork, and forward again. So groups from before a crash keep their staleness, and groups of lost
 * steps have the true distance of their weights.
 *
 * @param version version of the policy that trains on the group.
 * @param sampledBy [≥ 1] the versions of the group's tokens.
 * @param rewinds those of the run, `from` rising.
 */
export function staleness(
  version: number,
  sampledBy: readonly number[],
  rewinds: readonly Rewind[],
): number {
  return Math.max(...sampledBy.map((sampled) => distance(version, sampled, rewinds)));
}

/**
 * The number of steps between the policy in training and the newest token of a group.
 *
 * @param sampledBy [≥ 1] the versions of the group's tokens.
 */
export function stalenessOfNewest(
  version: number,
  sampledBy: readonly number[],
  rewinds: readonly Rewind[],
): number {
  return Math.min(...sampledBy.map((sampled) => distance(version, sampled, rewinds)));
}

/**
 * The lowest version whose rollouts may still be trained on by `version` or a later one. It is on
 * the branch of the current weights: lost steps have higher numbers than their fork.
 */
export function smallestUsefulVersion(
  version: number,
  maxStepsOffPolicy: number,
  rewinds: readonly Rewind[],
): number {
  let at = version;
  let left = maxStepsOffPolicy;
  for (const { from, to } of rewinds.toReversed()) {
    if (from > at) continue; // belongs to lost steps
    if (at - from > left) break;
    left -= at - from;
    at = to;
  }
  return Math.max(0, at - left);
}

/**
 * The rewinds that can still affect whether a group is within the bound, for a checkpoint of `version`
 * and everything trained from it. This keeps the list of a long run short.
 */
export function rewindsInReach(
  version: number,
  maxStepsOffPolicy: number,
  rewinds: readonly Rewind[],
): Rewind[] {
  const smallest = smallestUsefulVersion(version, maxStepsOffPolicy, rewinds);
  return rewinds.filter(({ from }) => from > smallest);
}

/** The number of steps between two versions in the tree of versions. */
function distance(one: number, other: number, rewinds: readonly Rewind[]): number {
  let [low, high] = one < other ? [one, other] : [other, one];
  let steps = 0;
  for (;;) {
    // Every version derives from a lower one, so the higher of the two is not before their fork.
    const rewind = rewinds.findLast(({ from }) => from <= high);
    if (rewind === undefined || rewind.from <= low) return steps + high - low;
    steps += high - rewind.from;
    [low, high] = rewind.to < low ? [rewind.to, low] : [low, rewind.to];
  }
}
