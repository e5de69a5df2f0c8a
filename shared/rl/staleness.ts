/**
 * What a crash did to the version numbers. They only ever rise, so a restored learner publishes the
 * weights of version `to` again as `from`; the versions between them belong to steps that were lost.
 */
export interface Rewind {
  readonly from: number; // greater than `to`
  readonly to: number;
}

/**
 * How many optimizer steps lie between the policy in training and the oldest token of a group.
 *
 * Without a rewind: the version in training minus the version of the oldest token. Across a rewind
 * the steps are counted along the branches: back from the sampled version to where the lost steps
 * forked off, and forward again. So groups from before a crash keep the staleness that they had, and
 * those of the lost steps count as far as their weights really are.
 *
 * @param version of the policy that trains on the group; at least `rewind.from`.
 * @param sampledBy [≥ 1] the versions of the group's tokens.
 */
export function staleness(
  version: number,
  sampledBy: readonly number[],
  rewind: Rewind | undefined,
): number {
  return Math.max(...sampledBy.map((sampled) => distance(version, sampled, rewind)));
}

/** The last version that may train on a group, which is `maxStepsOffPolicy` steps stale by then. */
export function deadline(
  version: number,
  sampledBy: readonly number[],
  maxStepsOffPolicy: number,
  rewind: Rewind | undefined,
): number {
  return version + maxStepsOffPolicy - staleness(version, sampledBy, rewind);
}

/** The lowest version whose rollouts may still be trained on by `version` or a later one. */
export function smallestUsefulVersion(
  version: number,
  maxStepsOffPolicy: number,
  rewind: Rewind | undefined,
): number {
  let smallest = version;
  for (let sampled = version; sampled >= 0; sampled--) {
    if (distance(version, sampled, rewind) <= maxStepsOffPolicy) smallest = sampled;
    else if (rewind === undefined || sampled < rewind.to) break; // it only grows from here
  }
  return smallest;
}

function distance(version: number, sampled: number, rewind: Rewind | undefined): number {
  if (rewind === undefined || sampled >= rewind.from) return version - sampled;
  return version - rewind.from + Math.abs(sampled - rewind.to);
}
