/**
 * What a crash did to the version numbers. They only ever rise, so a restored learner publishes the
 * weights of version `to` again as `from`; the versions between them belong to steps that were lost.
 */
export interface Rewind {
  readonly from: number; // greater than `to`
  readonly to: number;
}

/**
 * How many steps lie between the policy in training and the oldest token of a group. A step trains one batch
 * and makes one version, by however many optimizer steps.
 *
 * Without a rewind: the version in training minus the version of the oldest token. With rewinds the
 * versions are a tree, and the steps are counted along its branches: back from the sampled version to
 * where the two forked, and forward again. So groups from before a crash keep the staleness that they
 * had, and those of lost steps count as far as their weights really are.
 *
 * @param version of the policy that trains on the group.
 * @param sampledBy [≥ 1] the versions of the group's tokens.
 * @param rewinds of the run, `from` rising.
 */
export function staleness(
  version: number,
  sampledBy: readonly number[],
  rewinds: readonly Rewind[],
): number {
  return Math.max(...sampledBy.map((sampled) => distance(version, sampled, rewinds)));
}

/** The last version that may train on a group, which is `maxStepsOffPolicy` steps stale by then. */
export function deadline(
  version: number,
  sampledBy: readonly number[],
  maxStepsOffPolicy: number,
  rewinds: readonly Rewind[],
): number {
  return version + maxStepsOffPolicy - staleness(version, sampledBy, rewinds);
}

/**
 * The lowest version whose rollouts may still be trained on by `version` or a later one. It is one
 * of those that the weights went through: lost steps have higher numbers than where they forked off.
 */
export function smallestUsefulVersion(
  version: number,
  maxStepsOffPolicy: number,
  rewinds: readonly Rewind[],
): number {
  let at = version;
  let left = maxStepsOffPolicy;
  for (const { from, to } of rewinds.toReversed()) {
    if (from > at) continue; // of steps that were lost
    if (at - from > left) break;
    left -= at - from;
    at = to;
  }
  return Math.max(0, at - left);
}

/**
 * The rewinds that still decide, for a checkpoint of `version` and everything that is trained from
 * it, whether a group is within the bound; so the list of a long run stays short.
 */
export function rewindsInReach(
  version: number,
  maxStepsOffPolicy: number,
  rewinds: readonly Rewind[],
): Rewind[] {
  const smallest = smallestUsefulVersion(version, maxStepsOffPolicy, rewinds);
  return rewinds.filter(({ from }) => from > smallest);
}

/** The steps of the way from one version to the other in the tree of versions. */
function distance(one: number, other: number, rewinds: readonly Rewind[]): number {
  let [low, high] = one < other ? [one, other] : [other, one];
  let steps = 0;
  for (;;) {
    // Every version comes from a lower one, so the higher of the two is not before their fork.
    const rewind = rewinds.findLast(({ from }) => from <= high);
    if (rewind === undefined || rewind.from <= low) return steps + high - low;
    steps += high - rewind.from;
    [low, high] = rewind.to < low ? [rewind.to, low] : [low, rewind.to];
  }
}
